//! The planning of metrics that are read from maps, as far as the type and the flags of the map
//! allow.

use std::sync::Arc;

use aya_obj::generated::{BPF_F_RDONLY, BPF_F_WRONLY};
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::{EventKind, MapKind};

use crate::plan::map_spec::MapSpec;
use crate::plan::object::Definitions;
use crate::plan::probe_plan::MetricSource;
use crate::plan::request::{KernelFacts, PlanFindings};
use crate::plan::shape;
use twinprobe_ebpf_common::request::MetricRequest;

/// Plans how the map of a metric, which is defined as `spec`, is read.
pub fn plan(
    defined: &Definitions,
    request: &MetricRequest,
    spec: &MapSpec,
    facts: KernelFacts,
    notes: &mut PlanFindings,
) -> Result<MetricSource, Finding> {
    let name = &request.map;
    let kind = readable(&format!("map {name} is"), spec, |kind| {
        kind != MapKind::Global
    })
    .map_err(|message| request.finding("map", message))?;
    // An aggregation applies to the values that are shown: those of the inner maps for a map of
    // maps.
    let value_kind = if kind.is_nested() {
        inner_kind(request, spec)?
    } else {
        kind
    };
    if request.aggregation.is_some() && !value_kind.is_percpu() {
        let message = format!(
            "map {name} is of type {}, which has one value per entry: agg is for PERCPU maps, leave it out",
            value_kind.name()
        );
        notes.findings.push(request.finding("agg", message));
    }
    if kind.is_nested() && request.is_snapshot() && !request.is_reset() {
        let message = format!(
            "the windows of map {name} can't be added up, since its values are maps; add init: true"
        );
        notes.findings.push(request.finding("init", message));
    }
    if spec.flags & BPF_F_WRONLY != 0 {
        let message =
            format!("map {name} has BPF_F_WRONLY: the daemon can't read it; leave the flag out");
        notes.findings.push(request.finding("map", message));
    }
    if let Some(field) = request
        .writing_field()
        .filter(|_| spec.flags & BPF_F_RDONLY != 0)
    {
        let message = format!(
            "map {name} has BPF_F_RDONLY: the daemon can't reset it; leave the flag or {field} out"
        );
        notes.findings.push(request.finding(field, message));
    }
    let (layout, doubt) = shape::table_layout(&defined.btf, name, spec, kind, facts.possible_cpus);
    notes.warnings.extend(doubt);
    Ok(MetricSource::Table(Arc::new(layout)))
}

/// Returns the kind of a map, or the message for a map that metrics can't read.
fn readable(
    what: &str,
    spec: &MapSpec,
    possible: impl Fn(MapKind) -> bool,
) -> Result<MapKind, String> {
    MapKind::from_bpf_type(spec.map_type).filter(|kind| possible(*kind)).ok_or_else(|| {
        let maps = MapKind::ALL.into_iter().filter(|kind| possible(*kind)).map(MapKind::name);
        let kinds: Vec<&str> = maps.chain(EventKind::ALL.map(EventKind::name)).collect();
        let (number, kinds) = (spec.map_type, kinds.join(", "));
        format!(
            "{what} of BPF map type {number}, which can't be read as a metric; use one of {kinds}"
        )
    })
}

fn inner_kind(request: &MetricRequest, spec: &MapSpec) -> Result<MapKind, Finding> {
    let name = &request.map;
    let Some(inner) = &spec.inner else {
        let message = format!(
            "map {name} does not say what its maps are; use __array(values, struct {{...}})"
        );
        return Err(request.finding("map", message));
    };
    let table = |kind: MapKind| kind != MapKind::Global && !kind.is_nested();
    readable(&format!("the maps in map {name} are"), inner, table)
        .map_err(|message| request.finding("map", message))
}
