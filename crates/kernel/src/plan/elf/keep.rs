//! The sections that an object's program needs. Unneeded parts are dropped: compilers and linkers
//! put more into objects, and aya-obj refuses unknown parts.

use std::collections::HashSet;

use object::build::Id as _;
use object::build::elf::{Builder, Section, SectionData, SectionId};
use object::elf::{SHF_EXECINSTR, SHT_STRTAB, STT_FUNC};

use crate::plan::elf::error::ElfError;

/// The sections that the loader reads by their names.
const KNOWN: [&[u8]; 5] = [b".BTF", b".BTF.ext", b".maps", b"license", b"version"];
/// The beginnings of the names of sections with variables.
const VARIABLES: [&[u8]; 4] = [b".data", b".rodata", b".bss", b"maps"];
const TEXT: &[u8] = b".text";

/// Removes the parts that the program in the section `entry` does not need. `strange` are the
/// sections of unknown types, by index.
pub fn keep(
    builder: &mut Builder<'_>,
    entry: SectionId,
    strange: &[(usize, u32)],
) -> Result<(), ElfError> {
    let needed = needed(builder, entry);
    for (index, kind) in strange {
        let unknown = builder
            .sections
            .iter()
            .find(|section| section.id().index() == index.wrapping_sub(1));
        if let Some(section) = unknown.filter(|section| needed.contains(&section.id().index())) {
            let name = String::from_utf8_lossy(section.name.as_slice()).into_owned();
            return Err(ElfError::Strange { name, kind: *kind });
        }
    }
    let strange: HashSet<usize> = strange
        .iter()
        .map(|(index, _)| index.wrapping_sub(1))
        .collect();
    // The iterator leaves out deleted sections.
    let tables: Vec<SectionId> = builder
        .sections
        .iter()
        .filter(|section| is_relocation(section))
        .map(Section::id)
        .collect();
    for section in &mut builder.sections {
        let id = section.id().index();
        section.delete = strange.contains(&id) || !(needed.contains(&id) || is_table(section));
    }
    let deleted = |builder: &Builder<'_>, id: SectionId| builder.sections.get(id).delete;
    for table in tables {
        let target = builder.sections.get(table).sh_info_section;
        // Type information names functions and variables, and needs no relocation.
        let of_types = target.is_some_and(|id| {
            builder
                .sections
                .get(id)
                .name
                .as_slice()
                .starts_with(b".BTF")
        });
        let goes = of_types || target.is_none_or(|id| deleted(builder, id));
        builder.sections.get_mut(table).delete = goes;
    }
    builder.delete_orphans();
    Ok(())
}

fn is_relocation(section: &Section<'_>) -> bool {
    matches!(section.data, SectionData::Relocation(_))
}

/// Tells whether a section is one of the tables that every object has.
fn is_table(section: &Section<'_>) -> bool {
    let is_strings = section.sh_type == SHT_STRTAB && !matches!(section.data, SectionData::Data(_));
    is_strings
        || matches!(
            section.data,
            SectionData::Symbol | SectionData::SymbolSectionIndex | SectionData::SectionString
        )
}

/// Returns the sections that the loader reads, and the sections to which their code and definitions
/// refer.
fn needed(builder: &Builder<'_>, entry: SectionId) -> HashSet<usize> {
    let is_root = |section: &&Section<'_>| {
        let name = section.name.as_slice();
        // gcc leaves sections without a variable.
        let variables = section.sh_size > 0
            && VARIABLES
                .iter()
                .any(|beginning| name.starts_with(beginning));
        section.id() == entry || KNOWN.contains(&name) || variables || is_text(builder, section)
    };
    let mut needed: HashSet<usize> = builder
        .sections
        .iter()
        .filter(is_root)
        .map(|section| section.id().index())
        .collect();
    loop {
        let mut more = Vec::new();
        for section in &builder.sections {
            let SectionData::Relocation(relocations) = &section.data else {
                continue;
            };
            let from = section.sh_info_section.map(|id| builder.sections.get(id));
            let leads = |from: &Section<'_>| {
                needed.contains(&from.id().index()) && !from.name.as_slice().starts_with(b".BTF")
            };
            if !from.is_some_and(leads) {
                continue;
            }
            let targets = relocations
                .iter()
                .filter_map(|relocation| builder.symbols.get(relocation.symbol?).section);
            more.extend(
                targets
                    .map(|target| target.index())
                    .filter(|target| !needed.contains(target)),
            );
        }
        if more.is_empty() {
            return needed;
        }
        needed.extend(more);
    }
}

/// Tells whether a section has functions that programs call. A section of that name without such
/// functions is empty.
fn is_text(builder: &Builder<'_>, section: &Section<'_>) -> bool {
    let is_code = section.sh_flags & u64::from(SHF_EXECINSTR) != 0
        && section.name.as_slice().starts_with(TEXT);
    is_code
        && builder
            .symbols
            .iter()
            .any(|symbol| symbol.section == Some(section.id()) && symbol.st_type() == STT_FUNC)
}
