//! The variables in sections: map definitions and global variables.

use std::collections::HashMap;

use super::blob::Btf;
use super::types::{BtfKind, BtfMember, SectionEntry, Type};
use crate::layout::Render;

/// The types that a map definition (a variable in `.maps`) declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapTypes {
    /// The type id of `__type(key, ...)`.
    pub key: Option<u32>,
    /// The type id of `__type(value, ...)`.
    pub value: Option<u32>,
    /// The rendering in a tag of the variable. It applies to values whose type has no rendering.
    pub render: Option<Render>,
}

/// The types that the definition of a map of maps declares for the inner maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerMapTypes {
    /// The key and value types of the inner maps.
    pub types: MapTypes,
    /// The number of bytes from the start of the definition to `values`, the array of pointers to
    /// the inner maps.
    pub values_offset: usize,
}

/// A global variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionVariable {
    /// The name of the variable in C.
    pub name: String,
    /// The id of the variable's type.
    pub type_id: u32,
    /// The number of bytes from the start of the section. Compilers write 0 there, and loaders fill
    /// in the offset.
    pub offset: usize,
    /// The number of bytes of the variable's value.
    pub size: usize,
}

impl Btf {
    /// Returns the types of the map with this name in `.maps`, or of a map elsewhere that has an
    /// annotation.
    pub fn map_definition(&self, map_name: &str) -> Option<MapTypes> {
        let Some(&variable) = self.maps.get(map_name) else {
            return self.annotation(map_name);
        };
        let mut types = self.definition(variable)?;
        types.render = self.renders.get(&(variable, -1)).copied();
        Some(types)
    }

    /// Returns the types that an annotation declares: `BPF_ANNOTATE_KV_PAIR` of early libbpf and
    /// iproute2 makes `struct ____btf_map_NAME { KEY key; VALUE value; }`.
    fn annotation(&self, map_name: &str) -> Option<MapTypes> {
        let annotation = self.named_type(&format!("struct ____btf_map_{map_name}"))?;
        let members = self.members(annotation)?;
        let named = |name| {
            members
                .iter()
                .find(|member| self.name(member.name) == Ok(name))
        };
        let [key, value] = ["key", "value"].map(named);
        Some(MapTypes {
            key: Some(key?.type_id),
            value: Some(value?.type_id),
            render: None,
        })
    }

    /// Returns the types of the inner maps in the map of maps with this name: `__array(values,
    /// struct {...})`, which declares `struct {...} *values[]`.
    pub fn inner_map_definition(&self, map_name: &str) -> Option<InnerMapTypes> {
        let members = self.members(*self.maps.get(map_name)?)?;
        let values = members
            .iter()
            .find(|member| self.name(member.name) == Ok("values"))?;
        let &BtfKind::Array { element, .. } = self.strip(values.type_id).ok()?.kind else {
            return None;
        };
        let &BtfKind::Pointer(inner) = self.strip(element).ok()?.kind else {
            return None;
        };
        Some(InnerMapTypes {
            types: self.definition(inner)?,
            values_offset: values.bit_offset as usize / 8,
        })
    }

    /// Returns the number of bytes from the start of a map's definition to the slots that the
    /// source fills with programs: `__array(values, int (void *))`, which declares `int
    /// (*values[])(void *)`.
    pub fn programs_offset(&self, map_name: &str) -> Option<usize> {
        let members = self.members(*self.maps.get(map_name)?)?;
        let values = members
            .iter()
            .find(|member| self.name(member.name) == Ok("values"))?;
        let &BtfKind::Array { element, .. } = self.strip(values.type_id).ok()?.kind else {
            return None;
        };
        let &BtfKind::Pointer(program) = self.strip(element).ok()?.kind else {
            return None;
        };
        let is_program = matches!(self.strip(program).ok()?.kind, BtfKind::Prototype { .. });
        is_program.then_some(values.bit_offset as usize / 8)
    }

    /// Returns the variables in `.maps`. If several variables have the same name, the first one
    /// counts.
    pub(super) fn map_variables(&self) -> HashMap<String, u32> {
        let mut variables = HashMap::new();
        for SectionEntry { type_id, .. } in self.section(".maps") {
            variables
                .entry(self.type_name(*type_id).to_owned())
                .or_insert(*type_id);
        }
        variables
    }

    fn members(&self, type_id: u32) -> Option<&[BtfMember]> {
        match self.strip(type_id).ok()?.kind {
            BtfKind::Struct { members, .. } => Some(members),
            _ => None,
        }
    }

    fn definition(&self, type_id: u32) -> Option<MapTypes> {
        let mut types = MapTypes::default();
        for member in self.members(type_id)? {
            let slot = match self.name(member.name) {
                Ok("key") => &mut types.key,
                Ok("value") => &mut types.value,
                _ => continue,
            };
            // `__type(key, T)` declares `T *key`.
            *slot = match self.strip(member.type_id).map(|stripped| stripped.kind) {
                Ok(&BtfKind::Pointer(target)) => Some(target),
                _ => None,
            };
        }
        Some(types)
    }

    /// Returns the variables of a data section such as `.bss`, in the order of the section.
    pub fn section_variables(&self, section: &str) -> Vec<SectionVariable> {
        self.section(section)
            .map(|entry| SectionVariable {
                name: self.type_name(entry.type_id).to_owned(),
                type_id: entry.type_id,
                offset: entry.offset as usize,
                size: entry.size as usize,
            })
            .collect()
    }

    fn section(&self, name: &str) -> impl Iterator<Item = &SectionEntry> {
        let named = move |ty: &&Type| self.name(ty.name) == Ok(name);
        self.types
            .iter()
            .filter(named)
            .filter_map(|ty| match &ty.kind {
                BtfKind::Section(entries) => Some(entries),
                _ => None,
            })
            .flatten()
    }
}
