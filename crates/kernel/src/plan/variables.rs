//! Global variables as metrics: `.bss:VAR`, `.data:VAR`, `.rodata:VAR`.

use std::collections::BTreeSet;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::{Layout, MapKind, SectionVariable, TableLayout};

use crate::plan::build::{MetricRequest, private_maps};
use crate::plan::object::ProbeObject;

/// Where a variable is, and what it is.
pub struct VariableSpec {
    pub layout: Arc<TableLayout>,
    pub offset: usize,
    /// What a reset writes: zeros in `.bss`, else what the source says.
    pub initial: Box<[u8]>,
}

pub fn check(
    object: &ProbeObject,
    request: &MetricRequest,
    warnings: &mut Vec<String>,
) -> Result<VariableSpec, Finding> {
    let refuse =
        |field: &str, message: String| Finding::config(format!("{}.{field}", request.field), message);
    let (section, name) = request.map.split_once(':').unwrap_or((&request.map, ""));
    let variable = find(object, section, name).map_err(|message| refuse("map", message))?;
    let spec = &object.maps()[section];
    if request.aggregated {
        let message = format!("{} has one value: agg is for PERCPU maps, leave it out", request.map);
        return Err(refuse("agg", message));
    }
    if spec.frozen && (request.snapshot || request.reset) {
        let field = if request.reset { "init" } else { "snapshot" };
        return Err(refuse(field, format!("{} is constant; leave {field} out", request.map)));
    }
    let range = variable.offset..variable.offset + variable.size;
    let initial: Box<[u8]> = match spec.initial.get(range) {
        Some(bytes) => bytes.into(),
        None => vec![0; variable.size].into(),
    };
    if request.snapshot && !request.reset && initial.iter().any(|&byte| byte != 0) {
        let message = format!(
            "the windows of {} can't be added up, since each begins with its initial value; add init: true, or let \
             it begin with 0",
            request.map
        );
        return Err(refuse("init", message));
    }
    let layout = object.btf().layout(variable.type_id).ok().filter(|layout| layout.size == variable.size);
    let value = layout.unwrap_or_else(|| {
        warnings.push(format!("{}: its type can't be decoded, it is shown in hex", request.map));
        Layout::opaque(variable.size)
    });
    let layout = TableLayout { kind: MapKind::Global, key: Layout::opaque(0), value, slots: 1, inner: None };
    Ok(VariableSpec { layout: Arc::new(layout), offset: variable.offset, initial })
}

fn find(object: &ProbeObject, section: &str, name: &str) -> Result<SectionVariable, String> {
    let variables = object.btf().section_variables(section);
    let mut named = variables.iter().filter(|variable| variable.name == name);
    let size = object.maps().get(section).map_or(0, |spec| spec.value_size as usize);
    match (named.next(), named.next()) {
        (Some(variable), None)
            if variable.size > 0 && variable.size <= size.saturating_sub(variable.offset) =>
        {
            Ok(variable.clone())
        }
        (Some(_), None) => Err(format!("variable {name} has no size")),
        (Some(_), Some(_)) => {
            Err(format!("{section} has several variables {name}; give them different names"))
        }
        (None, _) => {
            let known: Vec<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Err(format!("the source has no variable {name} in {section}; it has {known}"))
        }
    }
}

/// A section is private as a whole, also those of its variables that no metric names.
pub fn warn_of_neighbours(object: &ProbeObject, requests: &[MetricRequest], warnings: &mut Vec<String>) {
    let sections: BTreeSet<String> =
        private_maps(object, requests).into_iter().filter(|name| name.starts_with('.')).collect();
    for section in sections {
        let variables = object.btf().section_variables(&section);
        let is_metric =
            |name: &str| requests.iter().any(|request| request.map == format!("{section}:{name}"));
        let others: Vec<&str> =
            variables.iter().map(|variable| variable.name.as_str()).filter(|name| !is_metric(name)).collect();
        if !others.is_empty() {
            warnings.push(format!(
                "{section} is private to each twin, because of the snapshots of its variables; so are {}: what one \
                 twin writes there the other does not see",
                others.join(", ")
            ));
        }
    }
}
