//! Streams of events as metrics.

use twinprobe_ebpf_common::metric::Visibility;
use twinprobe_ebpf_common::{Btf, EventKind, MergeRules};

use crate::plan::object::Definitions;
use crate::plan::probe_plan::MetricSource;
use crate::plan::request::PlanFindings;
use twinprobe_ebpf_common::request::MetricRequest;

/// The most struct types that a message lists.
const LISTED: usize = 20;

/// Plans how the events of a map of this kind are decoded.
pub fn plan(
    defined: &Definitions,
    request: &MetricRequest,
    kind: EventKind,
    notes: &mut PlanFindings,
) -> MetricSource {
    refuse_settings(request, kind, notes);
    let Some(name) = &request.event_type else {
        notes.warnings.push(format!(
            "map {}: no type is given, its events are shown in hex",
            request.map
        ));
        return MetricSource::Events(kind, None);
    };
    let layout = match defined.btf.named_type(name) {
        None => Err(unknown(&defined.btf, name)),
        Some(id) => defined
            .btf
            .layout(id)
            .map_err(|error| format!("{name} can't be decoded: {error}")),
    };
    let layout = layout.map_err(|message| notes.findings.push(request.finding("type", message)));
    MetricSource::Events(kind, layout.ok())
}

/// Adds a finding for each setting that has no meaning for events.
fn refuse_settings(request: &MetricRequest, kind: EventKind, notes: &mut PlanFindings) {
    let map = format!("map {} is of type {}", request.map, kind.name());
    let stream = "its events are streamed, each once";
    let hidden = request.visibility == Visibility::Hidden;
    let merged = request
        .rules()
        .is_some_and(|rules| *rules != MergeRules::default());
    for (asked, field, message) in [
        (
            request.is_snapshot(),
            "snapshot",
            "there is no state to take a snapshot of; leave snapshot out",
        ),
        (
            request.is_reset(),
            "init",
            "reading takes an event out anyway; leave init out",
        ),
        (
            request.aggregation.is_some(),
            "agg",
            "there is nothing to aggregate; leave agg out",
        ),
        (
            merged,
            "merge",
            "there are no windows to add up; leave merge out",
        ),
        (
            hidden,
            "export",
            "a client has to ask for them anyway; leave export out",
        ),
    ] {
        if asked {
            notes
                .findings
                .push(request.finding(field, format!("{map}: {stream}, {message}")));
        }
    }
}

fn unknown(btf: &Btf, name: &str) -> String {
    let mut known: Vec<String> = btf.struct_names().collect();
    known.sort();
    let more = known.len().saturating_sub(LISTED);
    known.truncate(LISTED);
    let known = if known.is_empty() {
        "no struct".to_owned()
    } else {
        known.join(", ")
    };
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "the object knows no type {name}; it knows {known}{more}. A type that only passes through void * leaves no \
         trace in it: declare a variable of that type, e.g. `{name} *unused __attribute__((unused));`"
    )
}
