//! Constants in sections by their size: clang puts a `static const` table of 4, 8, 16 or 32 bytes
//! into `.rodata.cst4` and so on, while its type information says that the table is in `.rodata`.
//! Linkers join such sections.

use std::collections::{HashMap, HashSet};

use object::build::Id as _;
use object::build::elf::{Builder, Relocation, Section, SectionData, SectionId};
use object::elf::{STT_NOTYPE, STT_SECTION};

const HOME: &[u8] = b".rodata";
const BY_SIZE: &[u8] = b".rodata.cst";
/// The largest alignment of a moved section, in bytes. The gap before the section is filled.
const MAX_ALIGN: u64 = 4096;
/// The size of `struct btf_var_secinfo`, and the place of the variable's offset in it, in bytes.
const ENTRY: usize = 12;
const OFFSET: usize = 4;

/// Moves the constants that have types to `.rodata`, in the object and in its type information.
pub fn gather(builder: &mut Builder<'_>) {
    let Some(btf) = named(builder, b".BTF") else {
        return;
    };
    let mut from = by_size(builder, btf);
    let Some(first) = from.first().copied() else {
        return;
    };
    let home = named(builder, HOME).unwrap_or_else(|| {
        builder.sections.get_mut(first).name = HOME.into();
        from.remove(0)
    });
    let Some(mut content) = data(builder, home) else {
        return;
    };
    for section in from {
        let Some(more) = data(builder, section) else {
            continue;
        };
        let align = builder.sections.get(section).sh_addralign.max(1);
        content.resize(content.len().next_multiple_of(align as usize), 0);
        let start = content.len() as u64;
        content.extend(more);
        for symbol in builder
            .symbols
            .iter_mut()
            .filter(|symbol| symbol.section == Some(section))
        {
            symbol.section = Some(home);
            symbol.st_value = symbol.st_value.saturating_add(start);
            if symbol.st_type() == STT_SECTION {
                symbol.set_st_info(symbol.st_bind(), STT_NOTYPE);
            }
        }
        builder.sections.get_mut(section).delete = true;
        let home = builder.sections.get_mut(home);
        home.sh_addralign = home.sh_addralign.max(align);
    }
    builder.sections.get_mut(home).data = SectionData::Data(content.into());
    place_variables(builder, btf, home);
}

fn named(builder: &Builder<'_>, name: &[u8]) -> Option<SectionId> {
    builder
        .sections
        .iter()
        .find(|section| section.name.as_slice() == name)
        .map(Section::id)
}

fn data(builder: &Builder<'_>, section: SectionId) -> Option<Vec<u8>> {
    match &builder.sections.get(section).data {
        SectionData::Data(bytes) => Some(bytes.as_slice().to_vec()),
        _ => None,
    }
}

/// Returns the offsets in a section at which it refers to symbols.
fn relocations<'a>(
    builder: &'a Builder<'_>,
    section: SectionId,
) -> impl Iterator<Item = &'a Relocation> {
    let tables = builder
        .sections
        .iter()
        .filter(move |table| table.sh_info_section == Some(section));
    let tables = tables.filter_map(|table| match &table.data {
        SectionData::Relocation(relocations) => Some(relocations),
        _ => None,
    });
    tables.flatten()
}

/// Returns the sections of constants, named by their size, that the type information describes and
/// that refer to nothing.
fn by_size(builder: &Builder<'_>, btf: SectionId) -> Vec<SectionId> {
    let symbols = relocations(builder, btf).filter_map(|relocation| relocation.symbol);
    let typed: HashSet<usize> = symbols
        .filter_map(|symbol| Some(builder.symbols.get(symbol).section?.index()))
        .collect();
    let sections = builder
        .sections
        .iter()
        .filter(|section| section.name.starts_with(BY_SIZE));
    let sections = sections
        .filter(|section| section.sh_addralign <= MAX_ALIGN)
        .map(Section::id);
    sections
        .filter(|id| typed.contains(&id.index()) && relocations(builder, *id).next().is_none())
        .collect()
}

/// Writes the place of each variable in the section `home` into the type information, and sorts the
/// variables by place, as the kernel demands.
fn place_variables(builder: &mut Builder<'_>, btf: SectionId, home: SectionId) {
    let symbols = builder
        .symbols
        .iter()
        .filter(|symbol| symbol.section == Some(home));
    let starts: HashMap<usize, u64> = symbols
        .map(|symbol| (symbol.id().index(), symbol.st_value))
        .collect();
    let Some(mut content) = data(builder, btf) else {
        return;
    };
    let mut entries: Vec<(usize, u32, [u8; ENTRY])> = Vec::new();
    for relocation in relocations(builder, btf) {
        let start = relocation
            .symbol
            .and_then(|symbol| starts.get(&symbol.index()));
        let place = usize::try_from(relocation.r_offset)
            .ok()
            .and_then(|at| at.checked_sub(OFFSET));
        let (Some(start), Some(place)) = (start, place) else {
            continue;
        };
        let entry = content.get(place..).and_then(<[u8]>::first_chunk::<ENTRY>);
        let Some(mut entry) = entry.copied() else {
            continue;
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(|byte| entry[OFFSET + byte]);
        let offset = u32::from_le_bytes([a, b, c, d]).saturating_add(*start as u32);
        entry[OFFSET..OFFSET + 4].copy_from_slice(&offset.to_le_bytes());
        entries.push((place, offset, entry));
    }
    let mut places: Vec<usize> = entries.iter().map(|(place, ..)| *place).collect();
    places.sort_unstable();
    entries.sort_by_key(|(_, offset, _)| *offset);
    for (place, (.., entry)) in places.into_iter().zip(entries) {
        content[place..place + ENTRY].copy_from_slice(&entry);
    }
    builder.sections.get_mut(btf).data = SectionData::Data(content.into());
}
