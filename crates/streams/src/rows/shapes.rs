//! The windows of a batch by their tables in a database: windows of one probe and one shape share
//! tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::window::shape::MetricShape;

use super::head::DocumentHead;
use super::identifier::identifier;
use crate::receiver::{SendError, StreamItem, StreamWindow};

/// The table with a row for each window.
pub const WINDOWS: &str = "windows";
/// The table with a row for each gap.
pub const GAPS: &str = "gaps";
/// The number of a row within its window.
pub const ROW: &str = "row";

/// A window with its place in the batch.
pub struct PlacedWindow<'a> {
    pub at: usize,
    pub window: &'a StreamWindow,
    pub head: DocumentHead,
}

/// Windows that share their tables.
pub struct ShapeGroup<'a> {
    /// The first window, which has the shape of all.
    pub first: &'a StreamWindow,
    pub windows: Vec<PlacedWindow<'a>>,
}

/// Returns the windows of a batch by their probe and shape.
pub fn by_shape(batch: &[Arc<StreamItem>]) -> Result<Vec<ShapeGroup<'_>>, SendError> {
    let mut groups: BTreeMap<(&str, &str), ShapeGroup<'_>> = BTreeMap::new();
    for (at, item) in batch.iter().enumerate() {
        let StreamItem::Window(window) = &**item else {
            continue;
        };
        let place = (&*window.name.series.probe, &*window.shape.digest);
        let group = groups.entry(place).or_insert(ShapeGroup {
            first: window,
            windows: Vec::new(),
        });
        group.windows.push(PlacedWindow {
            at,
            window,
            head: DocumentHead::of(window)?,
        });
    }
    Ok(groups.into_values().collect())
}

/// Returns the name of the table of a metric.
pub fn table(probe: &str, metric: &MetricShape) -> String {
    identifier(&format!(
        "{probe}.{}.{}",
        metric.direction.name(),
        metric.name
    ))
}
