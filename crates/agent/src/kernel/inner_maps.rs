//! What maps of maps hold from the start: `.values = { [0] = &a, [3] = &b }`. clang writes it as relocations of
//! the section `.maps`, which aya-obj does not read.

use std::collections::BTreeMap;

use object::read::{Object as _, ObjectSection as _, ObjectSymbol as _};
use object::{File, RelocationTarget, SymbolKind};
use twinprobe_ebpf_common::btf::Btf;

const POINTER: u64 = 8;

/// By the name of the outer map: which inner map is in which slot.
pub type Slots = BTreeMap<String, BTreeMap<u32, String>>;

pub fn slots(elf: &[u8], btf: &Btf) -> Result<Slots, object::read::Error> {
    let file = File::parse(elf)?;
    let mut slots = Slots::new();
    let Some(section) = file.section_by_name(".maps") else { return Ok(slots) };
    let data = section.data()?;
    // The map definition that covers an offset in the section, and where it begins.
    let map_at = |offset: u64| {
        let symbol = file.symbols().find(|symbol| {
            symbol.section_index() == Some(section.index())
                && symbol.kind() != SymbolKind::Section
                && (symbol.address()..symbol.address() + symbol.size()).contains(&offset)
        })?;
        Some((symbol.name().ok()?.to_owned(), symbol.address()))
    };
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let symbol = file.symbol_by_index(index)?;
        let inner = if symbol.kind() == SymbolKind::Section {
            // A static map is named by the section and by what stands at the place of the relocation.
            let place = data.get(offset as usize..).and_then(|rest| rest.first_chunk::<8>());
            place.and_then(|place| map_at(u64::from_le_bytes(*place))).map(|(name, _)| name)
        } else {
            symbol.name().ok().map(str::to_owned)
        };
        let Some((outer, start)) = map_at(offset) else { continue };
        let Some(definition) = btf.inner_map_definition(&outer) else { continue };
        let slot = (offset - start).checked_sub(definition.values_offset as u64).map(|bytes| bytes / POINTER);
        if let (Some(inner), Some(Ok(slot))) = (inner, slot.map(u32::try_from)) {
            slots.entry(outer).or_default().insert(slot, inner);
        }
    }
    Ok(slots)
}
