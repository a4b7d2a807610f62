//! What the content of maps means, as the object's type information says.

use std::sync::Arc;

use twinprobe_ebpf_common::btf::{Btf, MapTypes};
use twinprobe_ebpf_common::{Layout, MapFamily, MapKind, Member, Shape, TableLayout};

use crate::plan::map_spec::MapSpec;

/// What the content of a map means. A data section is an array of one struct, whose fields are its variables.
#[derive(Clone, Debug, PartialEq)]
pub struct MapShape {
    pub key: Layout,
    pub value: Layout,
}

impl MapShape {
    /// The shape of the map `name`.
    pub fn new(btf: &Btf, name: &str, spec: &MapSpec) -> Self {
        let layout = |id: Option<u32>, size: usize| {
            let layout = id.and_then(|id| btf.layout(id).ok());
            layout.filter(|layout| layout.size == size).unwrap_or_else(|| Layout::opaque(size))
        };
        let (key, value) = (spec.key_size as usize, spec.value_size as usize);
        if name.starts_with('.') {
            let variables = btf.section_variables(name).into_iter();
            let members = variables.filter(|variable| variable.offset + variable.size <= value);
            let members = members.map(|variable| Member {
                bit_offset: 8 * variable.offset,
                bitfield: None,
                layout: layout(Some(variable.type_id), variable.size),
                name: variable.name,
            });
            let shape = Shape::Struct(members.collect());
            return Self { key: Layout::unsigned(key), value: Layout { size: value, shape, render: None } };
        }
        let types = btf.map_definition(name).unwrap_or_default();
        Self { key: layout(types.key, key), value: layout(types.value, value) }
    }

    /// How the map is read as a table; `None` if it has no rows of values.
    pub fn table(&self, spec: &MapSpec, possible_cpus: usize) -> Option<TableLayout> {
        let kind = MapKind::from_bpf_type(spec.map_type)
            .filter(|kind| !kind.is_nested() && kind.family() != MapFamily::Global)?;
        let slots = if kind.is_percpu() { possible_cpus } else { 1 };
        let key = if kind.has_keys() { self.key.clone() } else { Layout::opaque(0) };
        Some(TableLayout { kind, key, value: self.value.clone(), slots, inner: None })
    }
}

/// How to decode the map `name`, which is of `kind`. Without type information: as opaque bytes, and
/// the reason why.
pub fn table_layout(
    btf: &Btf,
    name: &str,
    spec: &MapSpec,
    kind: MapKind,
    possible_cpus: usize,
) -> (TableLayout, Option<String>) {
    let mut doubts = Vec::new();
    let types = btf.map_definition(name).unwrap_or_default();
    let mut layout = layout_of(btf, &format!("map {name}"), spec, types, kind, possible_cpus, &mut doubts);
    if let Some(inner) = spec.inner.as_deref()
        && let Some(kind) = MapKind::from_bpf_type(inner.map_type)
    {
        let types = btf.inner_map_definition(name).map(|inner| inner.types).unwrap_or_default();
        let what = format!("the maps in map {name}");
        let inner = layout_of(btf, &what, inner, types, kind, possible_cpus, &mut doubts);
        layout.inner = Some(Arc::new(inner));
    }
    (layout, (!doubts.is_empty()).then(|| doubts.join("; ")))
}

fn layout_of(
    btf: &Btf,
    what: &str,
    spec: &MapSpec,
    types: MapTypes,
    kind: MapKind,
    possible_cpus: usize,
    doubts: &mut Vec<String>,
) -> TableLayout {
    let mut layout = |part: &str, id: Option<u32>, size: u32| {
        let size = size as usize;
        let Some(id) = id else {
            doubts.push(format!("{what}: the {part} has no type (use __type), it is shown in hex"));
            return Layout::opaque(size);
        };
        match btf.layout(id) {
            Ok(layout) if layout.size == size => layout,
            Ok(layout) => {
                doubts.push(format!(
                    "{what}: the type of the {part} has {} bytes, not {size}; it is shown in hex",
                    layout.size
                ));
                Layout::opaque(size)
            }
            Err(error) => {
                doubts.push(format!("{what}: the {part} is shown in hex: {error}"));
                Layout::opaque(size)
            }
        }
    };
    let key = if kind.has_keys() { layout("key", types.key, spec.key_size) } else { Layout::opaque(0) };
    let mut value = if kind.is_nested() {
        // The id of a map, which is shown as that map's content.
        Layout::unsigned(spec.value_size as usize)
    } else {
        layout("value", types.value, spec.value_size)
    };
    value.render = value.render.or(types.render);
    let slots = if kind.is_percpu() { possible_cpus } else { 1 };
    TableLayout { kind, key, value, slots, inner: None }
}
