//! The counters of refused entries of maps, which `twinprobe.h` puts into a section of their own.
//! The daemon reads them like hidden metrics: with the windows of their maps. Documents show the
//! losses with the metrics of a map; a map that no metric shows has an entry of its own for them.
//! Beside them is the counter of packets whose bytes are not all counted.

use std::sync::Arc;

use twinprobe_ebpf_common::metric::{Counting, OnReplace, StrategyChoice, Visibility};
use twinprobe_ebpf_common::{Layout, MapKind, MergeRules, TableLayout};

use crate::plan::object::Definitions;
use crate::plan::probe_plan::{MapPlan, MetricSource, VariableSpec};
use twinprobe_ebpf_common::request::MetricRequest;

/// The section of the counters.
pub const SECTION: &str = ".data.twinprobe";
/// The counter of packets that stand for several frames and have headers that `twinprobe.h` does
/// not know.
const UNSURE: &str = ".data.twinprobe:tp_unsure";
/// The prefix of a counter's name. The name of its map follows.
const PREFIX: &str = "tp_lost_";
/// The size of a counter in bytes.
const SIZE: usize = size_of::<u64>();
/// The suffix of an entry's name if a metric of another map has the name of the map.
const OTHERWISE: &str = "_map";

/// Returns a request for the counter of each map that has one. `metrics` are the metrics of the
/// direction's maps. All counters are in one section, which is a single map, so they are private to
/// each twin if any map is. `field` is the field of the source.
pub fn requests(
    defined: &Definitions,
    metrics: &[&MetricRequest],
    field: &str,
    on_replace: OnReplace,
) -> Vec<MetricRequest> {
    let snapshots = metrics.iter().any(|metric| metric.is_snapshot());
    let hidden = |counter: String, reader: Option<&&MetricRequest>| MetricRequest {
        counting: if snapshots {
            Counting::Sum(MergeRules::default())
        } else {
            Counting::Live
        },
        visibility: Visibility::Hidden,
        on_replace: reader.map_or(on_replace, |reader| reader.on_replace),
        ..request(
            counter.clone(),
            counter,
            reader.map_or(field, |reader| &reader.field),
        )
    };
    let counters = defined.maps.keys().filter_map(|map| {
        let counter = format!("{SECTION}:{PREFIX}{map}");
        offset(defined, &counter)?;
        Some(hidden(
            counter,
            metrics.iter().find(|metric| metric.map == *map),
        ))
    });
    let unsure = offset(defined, UNSURE).map(|_| hidden(UNSURE.to_owned(), None));
    counters.chain(unsure).collect()
}

/// Returns a request for the losses of a map that no metric shows. `metrics` are the metrics of the
/// direction.
pub fn entry(
    map: &MapPlan,
    metrics: &[MetricRequest],
    field: &str,
) -> Option<(MetricRequest, MetricSource)> {
    let mut name = map.name.clone();
    let is_shown = |metric: &&MetricRequest| metric.visibility == Visibility::Export;
    while metrics
        .iter()
        .filter(is_shown)
        .any(|metric| metric.name == name)
    {
        name.push_str(OTHERWISE);
    }
    let request = MetricRequest {
        on_replace: map.on_replace,
        ..request(name, map.name.clone(), field)
    };
    Some((request, MetricSource::Losses(map.kind_name()?)))
}

/// Makes the request for a metric that documents show and readings do not change.
fn request(name: String, map: String, field: &str) -> MetricRequest {
    MetricRequest {
        field: field.to_owned(),
        name,
        map,
        counting: Counting::Live,
        visibility: Visibility::Export,
        aggregation: None,
        strategy: StrategyChoice::Auto,
        on_replace: OnReplace::default(),
        event_type: None,
    }
}

/// Returns the source of the counter that `request` asks for.
pub fn source(defined: &Definitions, request: &MetricRequest) -> Option<MetricSource> {
    let offset = offset(defined, &request.map)?;
    let (key, value) = (Layout::opaque(0), Layout::unsigned(SIZE));
    let layout = Arc::new(TableLayout {
        kind: MapKind::Global,
        key,
        value,
        slots: 1,
        inner: None,
    });
    Some(MetricSource::Variable(VariableSpec {
        layout,
        offset,
        initial: vec![0; SIZE].into(),
    }))
}

/// Tells whether `counter`, the map of a metric, counts packets whose bytes are not all counted.
pub fn is_unsure(counter: &str) -> bool {
    counter == UNSURE
}

/// Returns the map whose losses `counter`, the map of a metric, counts; `None` if it counts no
/// losses.
pub fn counted(counter: &str) -> Option<&str> {
    counter
        .strip_prefix(SECTION)?
        .strip_prefix(':')?
        .strip_prefix(PREFIX)
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
    // A source may also define such a variable.
    (counter.size == SIZE && counter.offset.is_multiple_of(SIZE) && counter.offset + SIZE <= size)
        .then_some(counter.offset)
}
