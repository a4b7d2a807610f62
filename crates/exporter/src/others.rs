//! The entries that a document leaves out.

use std::sync::Arc;

use twinprobe_ebpf_common::{RawTable, TableLayout};

/// The total of the entries that a document leaves out.
#[derive(Clone, Debug)]
pub struct Others {
    /// The number of these entries.
    pub entries: u64,
    /// The layout of the only row.
    pub layout: Arc<TableLayout>,
    /// One row with the joined value of all entries.
    pub rows: RawTable,
}
