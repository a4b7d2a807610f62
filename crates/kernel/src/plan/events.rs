//! What a configuration may ask of an event metric.

use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::{EventKind, Layout};

use crate::plan::build::MetricRequest;
use crate::plan::object::ProbeObject;

/// Struct types that a message lists.
const LISTED: usize = 20;

/// The layout of the events, if a type is given. What can't be done with events goes to `findings`.
pub fn check(
    object: &ProbeObject,
    request: &MetricRequest,
    kind: EventKind,
    findings: &mut Vec<Finding>,
) -> Option<Layout> {
    let map = format!("map {} is of type {}", request.map, kind.name());
    let stream = "its events are streamed, each once";
    for (asked, field, message) in [
        (request.snapshot, "snapshot", "there is no state to take a snapshot of; leave snapshot out"),
        (request.reset, "init", "reading takes an event out anyway; leave init out"),
        (request.aggregated, "agg", "there is nothing to aggregate; leave agg out"),
        (request.merged, "merge", "there are no windows to add up; leave merge out"),
        (request.hidden, "export", "a client has to ask for them anyway; leave export out"),
    ] {
        if asked {
            let message = format!("{map}: {stream}, {message}");
            findings.push(Finding::config(format!("{}.{field}", request.field), message));
        }
    }
    let name = request.event_type.as_deref()?;
    let layout = match object.btf().named_type(name) {
        None => Err(unknown(object, name)),
        Some(id) => object.btf().layout(id).map_err(|error| format!("{name} can't be decoded: {error}")),
    };
    layout.map_err(|message| findings.push(Finding::config(format!("{}.type", request.field), message))).ok()
}

fn unknown(object: &ProbeObject, name: &str) -> String {
    let mut known: Vec<String> = object.btf().struct_names().collect();
    known.sort();
    let more = known.len().saturating_sub(LISTED);
    known.truncate(LISTED);
    let known = if known.is_empty() { "no struct".to_owned() } else { known.join(", ") };
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "the object knows no type {name}; it knows {known}{more}. A type that only passes through void * leaves no \
         trace in it: declare a variable of that type, e.g. `{name} *unused __attribute__((unused));`"
    )
}
