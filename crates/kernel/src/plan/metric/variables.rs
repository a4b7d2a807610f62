//! Global variables as metrics: `.bss:VAR`, `.data:VAR`, `.rodata:VAR`.

use std::sync::Arc;

use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::{Layout, MapKind, SectionVariable, TableLayout};

use crate::plan::object::Definitions;
use crate::plan::probe_plan::{MetricSource, VariableSpec};
use crate::plan::request::PlanFindings;
use twinprobe_ebpf_common::request::MetricRequest;

/// Plans how the variable `name` of `section` is read.
pub fn plan(
    defined: &Definitions,
    request: &MetricRequest,
    (section, name): (&str, &str),
    notes: &mut PlanFindings,
) -> Result<MetricSource, Finding> {
    let variable =
        find(defined, section, name).map_err(|message| request.finding("map", message))?;
    let spec = &defined.maps[section];
    if request.aggregation.is_some() {
        let message = format!(
            "{} has one value: agg is for PERCPU maps, leave it out",
            request.map
        );
        return Err(request.finding("agg", message));
    }
    if let Some(field) = request.writing_field().filter(|_| spec.frozen) {
        return Err(request.finding(
            field,
            format!("{} is constant; leave {field} out", request.map),
        ));
    }
    let range = variable.offset..variable.offset + variable.size;
    let initial: Box<[u8]> = match spec.initial.get(range) {
        Some(bytes) => bytes.into(),
        None => vec![0; variable.size].into(),
    };
    if request.is_snapshot() && !request.is_reset() && initial.iter().any(|&byte| byte != 0) {
        let message = format!(
            "the windows of {} can't be added up, since each begins with its initial value; add init: true, or let \
             it begin with 0",
            request.map
        );
        return Err(request.finding("init", message));
    }
    let layout = defined
        .btf
        .layout(variable.type_id)
        .ok()
        .filter(|layout| layout.size == variable.size);
    let value = layout.unwrap_or_else(|| {
        notes.warnings.push(format!(
            "{}: its type can't be decoded, it is shown in hex",
            request.map
        ));
        Layout::opaque(variable.size)
    });
    let layout = TableLayout {
        kind: MapKind::Global,
        key: Layout::opaque(0),
        value,
        slots: 1,
        inner: None,
    };
    Ok(MetricSource::Variable(VariableSpec {
        layout: Arc::new(layout),
        offset: variable.offset,
        initial,
    }))
}

fn find(defined: &Definitions, section: &str, name: &str) -> Result<SectionVariable, String> {
    let variables = defined.btf.section_variables(section);
    let mut named = variables.iter().filter(|variable| variable.name == name);
    let size = defined
        .maps
        .get(section)
        .map_or(0, |spec| spec.value_size as usize);
    match (named.next(), named.next()) {
        (Some(variable), None)
            if variable.size > 0 && variable.size <= size.saturating_sub(variable.offset) =>
        {
            Ok(variable.clone())
        }
        (Some(_), None) => Err(format!("variable {name} has no size")),
        (Some(_), Some(_)) => Err(format!(
            "{section} has several variables {name}; give them different names"
        )),
        (None, _) => {
            let known: Vec<&str> = variables
                .iter()
                .map(|variable| variable.name.as_str())
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            Err(format!(
                "the source has no variable {name} in {section}; it has {known}"
            ))
        }
    }
}
