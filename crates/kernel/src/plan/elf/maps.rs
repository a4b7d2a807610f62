//! References to maps: the references in code, and the references of maps of maps to their inner
//! maps.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use object::build::Id as _;
use object::build::elf::{Builder, Section, SectionData, SectionId, Symbol, SymbolId};
use object::elf::{SHF_EXECINSTR, STT_SECTION};

/// A pointer to a map or program in the definition of a map.
#[derive(Debug)]
pub struct MapPointer {
    pub outer: String,
    /// The offset of the pointer in the outer map's definition, in bytes.
    pub offset: u64,
    /// The name of the map or program.
    pub inner: String,
}

/// The size and the symbol of each map definition in `.maps`, by the definition's offset in the
/// section, in bytes.
type MapDefinitions = BTreeMap<u64, (u64, SymbolId)>;

/// Makes references to `static` maps name the map's own symbol: clang names such a map by its
/// section and its offset there, and aya-obj would take any map of that section. Returns the
/// pointers between map definitions.
pub fn name_maps(builder: &mut Builder<'_>) -> Vec<MapPointer> {
    let sections = builder
        .sections
        .iter()
        .filter(|section| !section.delete && is_maps(section));
    let sections: Vec<SectionId> = sections.map(Section::id).collect();
    sections
        .into_iter()
        .flat_map(|maps| name_maps_of(builder, maps))
        .collect()
}

/// Tells whether a section has definitions of maps. Definitions without types, for early loaders,
/// are in `maps`.
fn is_maps(section: &Section<'_>) -> bool {
    section.name.as_slice() == b".maps" || section.name.as_slice().starts_with(b"maps")
}

fn name_maps_of(builder: &mut Builder<'_>, maps: SectionId) -> Vec<MapPointer> {
    let in_maps = || {
        builder
            .symbols
            .iter()
            .filter(|symbol| symbol.section == Some(maps))
    };
    let section_symbols: Vec<SymbolId> = in_maps()
        .filter(|symbol| symbol.st_type() == STT_SECTION)
        .map(|symbol| symbol.id())
        .collect();
    let definitions: MapDefinitions = in_maps()
        .filter(|symbol| symbol.st_type() != STT_SECTION && symbol.st_size > 0)
        .map(|symbol| (symbol.st_value, (symbol.st_size, symbol.id())))
        .collect();

    let (mut named, mut pointers) = (Vec::new(), Vec::new());
    let name = |id| String::from_utf8_lossy(builder.symbols.get(id).name.as_slice()).into_owned();
    for section in builder.sections.iter().filter(|section| !section.delete) {
        let (SectionData::Relocation(relocations), Some(target)) =
            (&section.data, section.sh_info_section)
        else {
            continue;
        };
        for (index, relocation) in relocations.iter().enumerate() {
            let Some(mut symbol) = relocation.symbol else {
                continue;
            };
            if section_symbols.contains(&symbol)
                && let Some(place) = addend(builder, target, target == maps, relocation.r_offset)
                && let Some((_, static_map)) = definition(&definitions, place)
            {
                symbol = static_map;
                named.push((section.id(), index, symbol));
            }
            if target == maps
                && let Some((offset, outer)) = definition(&definitions, relocation.r_offset)
            {
                pointers.push(MapPointer {
                    outer: name(outer),
                    offset,
                    inner: name(symbol),
                });
            }
        }
    }
    for (section, index, symbol) in named {
        if let SectionData::Relocation(relocations) = &mut builder.sections.get_mut(section).data {
            relocations[index].symbol = Some(symbol);
        }
    }
    // aya-obj would treat such a symbol as a map.
    section_symbols
        .into_iter()
        .for_each(|symbol| builder.symbols.get_mut(symbol).delete = true);
    pointers
}

/// Returns the maps to which no reference leads. Call this once the references name the maps' own
/// symbols.
pub fn unused(builder: &Builder<'_>) -> BTreeSet<String> {
    let relocations = builder
        .sections
        .iter()
        .filter_map(|section| match &section.data {
            SectionData::Relocation(relocations) if !section.delete => Some(relocations),
            _ => None,
        });
    let used = relocations
        .flatten()
        .filter_map(|relocation| Some(relocation.symbol?.index()));
    let used: HashSet<usize> = used.collect();
    let is_unused = |symbol: &&Symbol<'_>| {
        let section = symbol.section.map(|section| builder.sections.get(section));
        section.is_some_and(is_maps) && symbol.st_size > 0 && !used.contains(&symbol.id().index())
    };
    let unused = builder.symbols.iter().filter(is_unused);
    unused
        .map(|symbol| String::from_utf8_lossy(symbol.name.as_slice()).into_owned())
        .collect()
}

/// Reads the number at the place of a relocation: in `.maps` this is a pointer, and in code the
/// immediate of an instruction.
fn addend(builder: &Builder<'_>, target: SectionId, pointer: bool, offset: u64) -> Option<u64> {
    let section = builder.sections.get(target);
    let SectionData::Data(data) = &section.data else {
        return None;
    };
    let at = data.as_slice().get(usize::try_from(offset).ok()?..)?;
    if pointer {
        return at.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    }
    let is_code = section.sh_flags & u64::from(SHF_EXECINSTR) != 0;
    at.get(4..)?
        .first_chunk()
        .filter(|_| is_code)
        .map(|bytes| u64::from(u32::from_le_bytes(*bytes)))
}

/// Returns the map definition that covers `place`, an offset in `.maps`, and the offset of `place`
/// in the definition.
fn definition(definitions: &MapDefinitions, place: u64) -> Option<(u64, SymbolId)> {
    let (start, (size, symbol)) = definitions.range(..=place).next_back()?;
    (place - start < *size).then_some((place - start, *symbol))
}
