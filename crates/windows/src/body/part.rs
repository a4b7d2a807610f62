//! A part of a window's file or of a baseline: the rows of one map.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::{Direction, RawTable, TableLayout};

/// The rows of one metric that are not in its map. The head of a baseline has everything except the
/// rows, and values that follow from both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselinePart {
    pub direction: Direction,
    /// The map, as the metric names it.
    pub map: String,
    /// The name of the metric; `None` in files from before several metrics could read one map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    pub content: PartContent,
    /// The last window whose numbers are in the rows.
    #[serde(skip)]
    pub through: u64,
    pub layout: Arc<TableLayout>,
    #[serde(skip)]
    pub rows: RawTable,
    /// The number of the last window that had each entry, for a sum whose entries come and go.
    #[serde(skip)]
    pub ages: Vec<u64>,
    /// The number of entries that the sum has dropped so far because it was full.
    #[serde(default)]
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartContent {
    /// The sum of the previous windows.
    Sum,
    /// Rows of the open window.
    Open,
}

pub fn ages_of(rows: &RawTable) -> Vec<u64> {
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    rows.values.chunks_exact(8).map(number).collect()
}

/// Converts ages into rows of 8 bytes.
pub fn ages_as_rows(ages: &[u64]) -> RawTable {
    RawTable {
        values: ages.iter().flat_map(|age| age.to_le_bytes()).collect(),
        ..RawTable::default()
    }
}
