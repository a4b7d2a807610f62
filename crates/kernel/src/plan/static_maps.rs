//! References to `static` maps. clang names such a map by its section and its place in it, and aya-obj would
//! take any map of that section: here they are made to name the map's own symbol.

use std::collections::BTreeMap;

use object::build::elf::{Builder, SectionData, SectionId, SymbolId};
use object::elf::{SHF_EXECINSTR, STT_SECTION};

/// The map definitions of `.maps`, by where they begin.
type Definitions = BTreeMap<u64, (u64, SymbolId)>;

pub fn name_them(builder: &mut Builder<'_>) {
    let Some(maps) = builder.sections.iter().find(|section| section.name.as_slice() == b".maps") else {
        return;
    };
    let maps = maps.id();
    let in_maps = || builder.symbols.iter().filter(|symbol| symbol.section == Some(maps));
    let section_symbols: Vec<SymbolId> =
        in_maps().filter(|symbol| symbol.st_type() == STT_SECTION).map(|symbol| symbol.id()).collect();
    let definitions: Definitions = in_maps()
        .filter(|symbol| symbol.st_type() != STT_SECTION && symbol.st_size > 0)
        .map(|symbol| (symbol.st_value, (symbol.st_size, symbol.id())))
        .collect();

    let mut named = Vec::new();
    for section in &builder.sections {
        let (SectionData::Relocation(relocations), Some(target)) = (&section.data, section.sh_info_section)
        else {
            continue;
        };
        for (index, relocation) in relocations.iter().enumerate() {
            if relocation.symbol.is_some_and(|symbol| section_symbols.contains(&symbol))
                && let Some(place) = addend(builder, target, target == maps, relocation.r_offset)
                && let Some(symbol) = definition(&definitions, place)
            {
                named.push((section.id(), index, symbol));
            }
        }
    }
    for (section, index, symbol) in named {
        if let SectionData::Relocation(relocations) = &mut builder.sections.get_mut(section).data {
            relocations[index].symbol = Some(symbol);
        }
    }
}

/// What stands at the place of a relocation: among the maps a pointer, in code the number in an instruction.
fn addend(builder: &Builder<'_>, target: SectionId, pointer: bool, offset: u64) -> Option<u64> {
    let section = builder.sections.get(target);
    let SectionData::Data(data) = &section.data else { return None };
    let at = data.as_slice().get(usize::try_from(offset).ok()?..)?;
    if pointer {
        return at.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    }
    let is_code = section.sh_flags & u64::from(SHF_EXECINSTR) != 0;
    at.get(4..)?.first_chunk().filter(|_| is_code).map(|bytes| u64::from(u32::from_le_bytes(*bytes)))
}

fn definition(definitions: &Definitions, place: u64) -> Option<SymbolId> {
    let (start, (size, symbol)) = definitions.range(..=place).next_back()?;
    (place - start < *size).then_some(*symbol)
}
