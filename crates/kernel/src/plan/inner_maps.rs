//! What maps of maps hold from the start: `.values = { [0] = &a, [3] = &b }`. clang writes it as relocations of
//! the section `.maps`, which aya-obj does not read.

use std::collections::BTreeMap;

use object::read::{Object as _, ObjectSection as _, ObjectSymbol as _};
use object::{File, RelocationTarget, SymbolKind};
use twinprobe_ebpf_common::Btf;

const POINTER: u64 = 8;

/// By the name of the outer map: which inner map is in which slot.
pub type Slots = BTreeMap<String, BTreeMap<u32, String>>;

pub fn slots(elf: &[u8], btf: &Btf) -> Result<Slots, object::read::Error> {
    let file = File::parse(elf)?;
    let mut slots = Slots::new();
    let Some(section) = file.section_by_name(".maps") else { return Ok(slots) };
    let definitions: BTreeMap<u64, (u64, &str)> = file
        .symbols()
        .filter(|symbol| symbol.section_index() == Some(section.index()))
        .filter(|symbol| symbol.kind() != SymbolKind::Section && symbol.size() > 0)
        .filter_map(|symbol| Some((symbol.address(), (symbol.size(), symbol.name().ok()?))))
        .collect();
    // The map definition that covers an offset in the section, and where it begins.
    let map_at = |offset: u64| {
        let (start, (size, name)) = definitions.range(..=offset).next_back()?;
        (offset - start < *size).then_some((*name, *start))
    };
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let symbol = file.symbol_by_index(index)?;
        let Ok(inner) = symbol.name() else { continue };
        let Some((outer, start)) = map_at(offset) else { continue };
        let Some(definition) = btf.inner_map_definition(outer) else { continue };
        let slot = (offset - start).checked_sub(definition.values_offset as u64).map(|bytes| bytes / POINTER);
        if let Some(Ok(slot)) = slot.map(u32::try_from) {
            slots.entry(outer.to_owned()).or_default().insert(slot, inner.to_owned());
        }
    }
    Ok(slots)
}
