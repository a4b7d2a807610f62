//! The counters of what found no room in a map, which `twinprobe.h` puts into a section of their own. They are read like
//! metrics that no document shows: with the windows of the maps that they belong to.

use std::sync::Arc;

use twinprobe_ebpf_common::metric::{AfterRead, Source, StrategyChoice, Visibility};
use twinprobe_ebpf_common::{Layout, MapKind, MergeRules, TableLayout};

use crate::plan::object::Definitions;
use crate::plan::probe_plan::{MetricSource, VariableSpec};
use crate::plan::request::MetricRequest;

/// The section of the counters.
const SECTION: &str = ".data.twinprobe";
/// The name of a counter, before that of its map.
const PREFIX: &str = "tp_lost_";
/// The size of a counter in bytes.
const SIZE: usize = size_of::<u64>();

/// Returns a request for the counter of each map that these metrics read, if the source has one. The counters are private to
/// each twin if any map is, since the section is one map.
pub fn requests<'a>(
    defined: &Definitions,
    metrics: impl Iterator<Item = &'a MetricRequest> + Clone,
) -> Vec<MetricRequest> {
    let snapshots = metrics.clone().any(MetricRequest::is_snapshot);
    let mut requests: Vec<MetricRequest> = Vec::new();
    for metric in metrics {
        let map = format!("{SECTION}:{PREFIX}{}", metric.map);
        if offset(defined, &map).is_none() || requests.iter().any(|known| known.map == map) {
            continue;
        }
        requests.push(MetricRequest {
            field: metric.field.clone(),
            name: map.clone(),
            map,
            source: if snapshots { Source::Snapshot } else { Source::Live },
            after_read: AfterRead::Keep,
            visibility: Visibility::Hidden,
            aggregation: None,
            merge: snapshots.then(MergeRules::default),
            strategy: StrategyChoice::Auto,
            on_replace: metric.on_replace,
            event_type: None,
        });
    }
    requests
}

/// Returns the source of the counter that `request` asks for.
pub fn source(defined: &Definitions, request: &MetricRequest) -> Option<MetricSource> {
    let offset = offset(defined, &request.map)?;
    let (key, value) = (Layout::opaque(0), Layout::unsigned(SIZE));
    let layout = Arc::new(TableLayout { kind: MapKind::Global, key, value, slots: 1, inner: None });
    Some(MetricSource::Variable(VariableSpec { layout, offset, initial: vec![0; SIZE].into() }))
}

/// Returns the map that `counter`, the map of a metric, counts the losses of; `None` if it is no such counter.
pub fn counted(counter: &str) -> Option<&str> {
    counter.strip_prefix(SECTION)?.strip_prefix(':')?.strip_prefix(PREFIX)
}

pub fn is_section(name: &str) -> bool {
    name == SECTION
}

/// Returns the offset of a counter in its section.
fn offset(defined: &Definitions, map: &str) -> Option<usize> {
    let name = map.strip_prefix(SECTION)?.strip_prefix(':')?;
    let size = defined.maps.get(SECTION)?.value_size as usize;
    let variables = defined.btf.section_variables(SECTION);
    let counter = variables.iter().find(|variable| variable.name == name)?;
    // A source may define such a variable by itself.
    (counter.size == SIZE && counter.offset.is_multiple_of(SIZE) && counter.offset + SIZE <= size)
        .then_some(counter.offset)
}
