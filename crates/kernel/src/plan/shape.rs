//! The types of the content of maps, from the object's type information.

use std::sync::Arc;

use twinprobe_ebpf_common::field::prefix::Prefix;
use twinprobe_ebpf_common::{
    Btf, Layout, MapFamily, MapKind, MapTypes, Member, Render, Shape, TableLayout,
};

use crate::plan::map_spec::MapSpec;

/// The types of a map's keys and values. A data section is an array with one struct, whose fields
/// are the variables.
#[derive(Clone, Debug, PartialEq)]
pub struct MapShape {
    pub key: Layout,
    pub value: Layout,
}

impl MapShape {
    pub fn new(btf: &Btf, name: &str, spec: &MapSpec) -> Self {
        let size = spec.value_size as usize;
        if !name.starts_with('.') {
            let types = btf.map_definition(name).unwrap_or_default();
            return Self::of_types(btf, "", types, spec, &mut Vec::new());
        }
        let variables = btf.section_variables(name).into_iter();
        let members = variables.filter(|variable| variable.offset + variable.size <= size);
        let members = members.map(|variable| Member {
            bit_offset: 8 * variable.offset,
            bitfield: None,
            layout: layout(btf, "", Some(variable.type_id), variable.size)
                .unwrap_or_else(|_| Layout::opaque(variable.size)),
            name: variable.name,
        });
        let shape = Shape::Struct(members.collect());
        let key = Layout::unsigned(spec.key_size as usize);
        Self {
            key,
            value: Layout {
                size,
                shape,
                render: None,
            },
        }
    }

    /// Returns the shape for these types. Bytes of an unknown type are opaque, and `doubts` get the
    /// reason.
    fn of_types(
        btf: &Btf,
        what: &str,
        types: MapTypes,
        spec: &MapSpec,
        doubts: &mut Vec<String>,
    ) -> Self {
        let mut known = |part, id, size: u32| {
            layout(btf, part, id, size as usize).unwrap_or_else(|reason| {
                doubts.push(format!("{what}: {reason}"));
                Layout::opaque(size as usize)
            })
        };
        let mut key = if spec.key_size > 0 {
            known("key", types.key, spec.key_size)
        } else {
            Layout::opaque(0)
        };
        let is_trie = MapKind::from_bpf_type(spec.map_type) == Some(MapKind::LpmTrie);
        if is_trie && Prefix::of_trie(&key).is_some() {
            key.render = Some(Render::Prefix);
        }
        let value = match &spec.inner {
            // The value is the id of an inner map, whose content is shown instead.
            Some(_) => Layout::unsigned(spec.value_size as usize),
            None => known("value", types.value, spec.value_size),
        };
        Self { key, value }
    }

    fn into_table(self, kind: MapKind, possible_cpus: usize) -> TableLayout {
        let Self { key, value } = self;
        let key = if kind.has_keys() {
            key
        } else {
            Layout::opaque(0)
        };
        let slots = if kind.is_percpu() { possible_cpus } else { 1 };
        TableLayout {
            kind,
            key,
            value,
            slots,
            inner: None,
        }
    }

    /// Returns the layout of the map as a table; `None` if the map has no rows of values.
    pub fn table(&self, spec: &MapSpec, possible_cpus: usize) -> Option<TableLayout> {
        let kind = MapKind::from_bpf_type(spec.map_type)
            .filter(|kind| !kind.is_nested() && kind.family() != MapFamily::Global)?;
        Some(self.clone().into_table(kind, possible_cpus))
    }
}

/// Returns the layout by which a metric decodes the map `name`, which is of `kind`. Also returns
/// the reason why parts of it can't be decoded, if there is one.
pub fn table_layout(
    btf: &Btf,
    name: &str,
    spec: &MapSpec,
    kind: MapKind,
    possible_cpus: usize,
) -> (TableLayout, Option<String>) {
    let mut doubts = Vec::new();
    let mut table = |what: &str, types: MapTypes, spec: &MapSpec, kind| {
        let mut shape = MapShape::of_types(btf, what, types, spec, &mut doubts);
        shape.value.render = shape.value.render.or(types.render);
        shape.into_table(kind, possible_cpus)
    };
    let types = btf.map_definition(name).unwrap_or_default();
    let mut layout = table(&format!("map {name}"), types, spec, kind);
    layout.inner = spec.inner.as_deref().and_then(|inner| {
        let kind = MapKind::from_bpf_type(inner.map_type)?;
        let types = btf
            .inner_map_definition(name)
            .map(|inner| inner.types)
            .unwrap_or_default();
        Some(Arc::new(table(
            &format!("the maps in map {name}"),
            types,
            inner,
            kind,
        )))
    });
    (layout, (!doubts.is_empty()).then(|| doubts.join("; ")))
}

/// Returns the layout of the type `id`, whose values have `size` bytes, or the reason why they are
/// shown in hex.
fn layout(btf: &Btf, part: &str, id: Option<u32>, size: usize) -> Result<Layout, String> {
    let id =
        id.ok_or_else(|| format!("the {part} has no type (use __type), it is shown in hex"))?;
    match btf.layout(id) {
        Ok(layout) if layout.size == size => Ok(layout),
        Ok(Layout { size: found, .. }) => Err(format!(
            "the type of the {part} has {found} bytes, not {size}; it is shown in hex"
        )),
        Err(error) => Err(format!("the {part} is shown in hex: {error}")),
    }
}
