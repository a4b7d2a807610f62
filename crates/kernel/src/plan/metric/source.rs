//! The choice of a metric's source, and of the effect of a reading on it.

use twinprobe_ebpf_common::metric::Visibility;
use twinprobe_ebpf_common::{EventKind, MapFamily};

use crate::plan::metric::{events, tables, variables};
use crate::plan::object::Definitions;
use crate::plan::probe_plan::{Extraction, MetricSource};
use crate::plan::request::{KernelFacts, PlanFindings};
use twinprobe_ebpf_common::request::MetricRequest;

/// Returns the source that the metric is read from; `None` if it can't be read, for which `notes`
/// get the finding.
pub fn source(
    defined: &Definitions,
    request: &MetricRequest,
    facts: KernelFacts,
    notes: &mut PlanFindings,
) -> Option<MetricSource> {
    let name = &request.map;
    let source = match (
        name.split_once(':'),
        defined.maps.get(name).filter(|_| !name.starts_with('.')),
    ) {
        (Some(variable), _) => variables::plan(defined, request, variable, notes),
        (None, Some(spec)) => match EventKind::from_bpf_type(spec.map_type) {
            Some(kind) => Ok(events::plan(defined, request, kind, notes)),
            None => tables::plan(defined, request, spec, facts, notes),
        },
        (None, None) => Err(request.finding("map", unknown(defined, name))),
    };
    if let Ok(MetricSource::Table(_) | MetricSource::Variable(_)) = source
        && request.event_type.is_some()
    {
        let message = format!(
            "the types of {name} are known from its definition: type is for events, leave it out"
        );
        notes.findings.push(request.finding("type", message));
    }
    source.map_err(|finding| notes.findings.push(finding)).ok()
}

fn unknown(defined: &Definitions, name: &str) -> String {
    if defined.calls.contains_key(name) {
        return format!(
            "{name} is a table of programs (prog_array), which has nothing to read; name another map"
        );
    }
    let names = defined
        .maps
        .keys()
        .map(String::as_str)
        .filter(|name| !name.starts_with('.'));
    let names: Vec<&str> = names.collect();
    let known = match names.is_empty() {
        true => "it defines none".to_owned(),
        false => format!("it defines {}", names.join(", ")),
    };
    format!("the source defines no map {name}; {known}")
}

/// Returns the effect of a reading on the metric's map. A reading of a queue or stack always
/// removes its values.
pub fn extraction(source: &MetricSource, request: &MetricRequest) -> Extraction {
    let pops = match source {
        MetricSource::Events(..) | MetricSource::Losses(_) => return Extraction::Stream,
        MetricSource::Table(layout) => layout.kind.family() == MapFamily::Fifo,
        MetricSource::Variable(_) => false,
    };
    match request.visibility {
        _ if request.is_snapshot() => Extraction::Clear,
        Visibility::Export if pops || request.is_reset() => Extraction::Drain,
        Visibility::Hidden if request.is_reset() => Extraction::Discard,
        Visibility::Export | Visibility::Hidden => Extraction::Copy,
    }
}
