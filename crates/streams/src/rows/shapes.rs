//! The windows of a batch by their tables in a database: windows of one probe and one shape share tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use twinprobe_ebpf_common::window::shape::MetricShape;

use super::identifier::identifier;
use crate::receiver::{ItemName, SendError, StreamItem, StreamWindow};

/// The table with a row for each window.
pub const WINDOWS: &str = "windows";
/// The table with a row for each gap.
pub const GAPS: &str = "gaps";
/// The number of a row within its window.
pub const ROW: &str = "row";

/// Windows that share their tables.
pub struct ShapeGroup<'a> {
    /// The first of them, which has the shape of all.
    pub first: &'a StreamWindow,
    /// Their places in the batch, and their documents.
    pub windows: Vec<(usize, &'a ItemName, Value)>,
}

/// Returns the windows of a batch by their probe and shape.
pub fn by_shape(batch: &[Arc<StreamItem>]) -> Result<Vec<ShapeGroup<'_>>, SendError> {
    let mut groups: BTreeMap<(&str, &str), ShapeGroup<'_>> = BTreeMap::new();
    for (at, item) in batch.iter().enumerate() {
        let StreamItem::Window(window) = &**item else { continue };
        let place = (&*window.name.series.probe, &*window.shape.digest);
        let group = groups.entry(place).or_insert(ShapeGroup { first: window, windows: Vec::new() });
        group.windows.push((at, &window.name, window.parsed()?));
    }
    Ok(groups.into_values().collect())
}

/// Returns the name of the table of a metric.
pub fn table(probe: &str, metric: &MetricShape) -> String {
    identifier(&format!("{probe}.{}.{}", metric.direction.name(), metric.name))
}

/// Returns the entries of a metric in a document.
pub fn entries<'a>(metric: &MetricShape, document: &'a Value) -> &'a [Value] {
    let found = &document[metric.direction.name()][&metric.name];
    found["entries"].as_array().map_or(&[], Vec::as_slice)
}
