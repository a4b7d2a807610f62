//! The preparation of objects for aya-obj: checks of the fields that aya-obj takes on trust, the
//! choice of the program, and new names for the sections of programs, because aya-obj 0.3 knows
//! only some. Parts that the program does not need are dropped.

mod constants;
pub mod error;
pub mod externs;
mod functions;
mod headers;
mod keep;
pub mod maps;
pub mod programs;
pub mod references;
pub mod tables;
mod types;
mod untyped;

use std::collections::{BTreeSet, HashMap};

use object::build::elf::{Builder, Section, SectionData, SectionId, Symbol, SymbolId};
use object::elf::{SHF_EXECINSTR, SHN_COMMON, SHN_UNDEF, SHT_NOBITS, SHT_PROGBITS, SHT_STRTAB};
use twinprobe_ebpf_common::Btf;
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_ebpf_common::unit::Calls;

use self::error::{ElfError, MAX_ALIGNMENT, MAX_NAME_BYTES, MAX_SECTION_BYTES};
use self::maps::MapPointer;
use self::programs::{ElfProgram, ProgramChoice};
use self::references::Misplaced;
use self::types::{Forgotten, Types};
use crate::plan::request::KernelOptions;
use crate::plan::sees::{self, Sees};

/// A symbol that the object uses but does not define.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undefined {
    pub symbol: String,
    /// The first function that uses the symbol, and the number of the instruction in it.
    pub used_at: Option<(String, usize)>,
}

/// An object that aya-obj can parse, and the parts that aya-obj does not read.
#[derive(Debug)]
pub struct Prepared {
    pub elf: Vec<u8>,
    /// The program that runs for each packet, and whether it can run.
    pub choice: ProgramChoice,
    /// The names of all other programs.
    pub others: Vec<String>,
    /// The pointers from map definitions to other map definitions, and to programs.
    pub pointers: Vec<MapPointer>,
    /// The maps to which neither the program nor another map refers.
    pub unused: BTreeSet<String>,
    /// The programs in the slots of tables for `bpf_tail_call`.
    pub calls: Calls,
    /// The symbols that the object uses but does not define. Nothing links the object with others,
    /// and kernel functions are not resolved.
    pub undefined: Vec<Undefined>,
    /// Relocations at instructions that take no reference.
    pub misplaced: Vec<Misplaced>,
    /// The parts of packets on which the program's numbers depend, as the object declares them.
    pub sees: Sees,
    /// The names of types that are only declared, by their numbers.
    pub declared: HashMap<u32, String>,
    pub warnings: Vec<String>,
}

/// Prepares the object of a program for `hook`. The program has the name `entry`, unless the object
/// decides.
pub fn prepare(
    elf: &[u8],
    hook: Hook,
    entry: Option<&str>,
    options: KernelOptions,
) -> Result<Prepared, ElfError> {
    let readable = headers::readable(elf)?;
    let mut builder = Builder::read(&*readable.elf)?;
    check(&builder, elf.len())?;
    untyped::complete(&mut builder);
    let programs = programs::programs(&builder);
    let choice = match programs::without_section(&builder, &programs, hook) {
        Some(refused) => refused,
        None => programs::choose(&programs, hook, entry)?,
    };
    let sees = sees(&builder);
    constants::gather(&mut builder);
    keep::keep(&mut builder, choice.section, &readable.strange)?;
    let called = programs::called(&builder);
    let forgotten =
        functions::forget_uncalled(&mut builder, (choice.section, &choice.entry), &called);
    check_code(&builder)?;
    let misplaced = references::misplaced(&builder);
    let (mut types, btf) = types(&builder)?;
    let absent = externs::resolve(&mut builder, &mut types, &btf, options)?;
    let warnings = absent.into_iter().map(|name| {
        format!(
            "the program finds no {name}: functions and variables of the kernel are not linked in"
        )
    });
    let warnings = warnings.collect();
    let undefined = undefined(&builder);
    let pointers = maps::name_maps(&mut builder);
    let unused = maps::unused(&builder);
    let calls = tables::calls(&btf, &pointers);
    let others = others(&programs, &choice.entry, &calls);
    if !calls.is_empty() {
        tables::make_static(&mut types, &choice.entry, &calls);
    }
    types.rename_slots_of_programs();
    let declared = types.declared();
    rename(&mut builder, types, &forgotten)?;
    add_section_names(&mut builder);
    builder.delete_orphans();
    let mut out = Vec::with_capacity(elf.len() + 256);
    builder.write(&mut out)?;
    Ok(Prepared {
        elf: out,
        choice,
        others,
        pointers,
        unused,
        calls,
        undefined,
        misplaced,
        sees,
        declared,
        warnings,
    })
}

/// Returns the names of the programs that nothing runs: neither the kernel for each packet, nor a
/// call through a table.
fn others(programs: &[ElfProgram], entry: &str, calls: &Calls) -> Vec<String> {
    let is_called = |name: &String| {
        calls
            .values()
            .flat_map(|slots| slots.values())
            .any(|called| called == name)
    };
    programs
        .iter()
        .map(|program| &program.name)
        .filter(|name| *name != entry && !is_called(name))
        .cloned()
        .collect()
}

/// Checks fields that could demand more memory than the object has.
fn check(builder: &Builder<'_>, length: usize) -> Result<(), ElfError> {
    let names = builder
        .sections
        .iter()
        .map(|section| section.name.as_slice());
    let mut names = names.chain(builder.symbols.iter().map(|symbol| symbol.name.as_slice()));
    if names.any(|name| name.len() > MAX_NAME_BYTES) {
        return Err(ElfError::LongName);
    }
    let in_file = builder
        .sections
        .iter()
        .filter(|section| section.sh_type != SHT_NOBITS);
    if in_file.fold(0, |sum: u64, section| sum.saturating_add(section.sh_size)) > length as u64 {
        return Err(ElfError::Overlap);
    }
    let mut total = 0_u64;
    for section in &builder.sections {
        let name = || String::from_utf8_lossy(section.name.as_slice()).into_owned();
        if section.is_alloc() || section.sh_type == SHT_NOBITS {
            total = total.saturating_add(section.sh_size);
            if total > MAX_SECTION_BYTES {
                return Err(ElfError::TooLarge {
                    name: name(),
                    size: section.sh_size,
                });
            }
        }
        if section.sh_addralign > MAX_ALIGNMENT {
            return Err(ElfError::Alignment {
                name: name(),
                bytes: section.sh_addralign,
            });
        }
    }
    Ok(())
}

/// Refuses code in which aya-obj finds functions by their addresses alone, so that it could confuse
/// two functions.
fn check_code(builder: &Builder<'_>) -> Result<(), ElfError> {
    let texts = builder
        .sections
        .iter()
        .filter(|section| !section.delete && is_text(section));
    let texts: Vec<String> = texts
        .map(|section| String::from_utf8_lossy(section.name.as_slice()).into_owned())
        .collect();
    if texts.len() > 1 {
        Err(ElfError::ManyTexts(texts.join(", ")))
    } else {
        Ok(())
    }
}

fn is_text(section: &Section<'_>) -> bool {
    section.name.as_slice().starts_with(b".text")
}

/// Tells whether aya-obj treats a section as a section of programs.
fn is_program(section: &Section<'_>) -> bool {
    section.sh_flags & u64::from(SHF_EXECINSTR) != 0 && !is_text(section)
}

/// Returns the type information of the object. Only the definitions of maps need it.
fn types(builder: &Builder<'_>) -> Result<(Types, Btf), ElfError> {
    let types = match section_data(builder, b".BTF") {
        Some(bytes) => {
            // aya-obj does not check the linkage of variables, so the compiled code could jump
            // anywhere.
            Btf::parse(&bytes)?;
            Types::read(&bytes)?
        }
        None if find(builder, b".maps").is_some() => return Err(ElfError::NoBtf),
        None => Types::none(),
    };
    let btf = Btf::parse(&types.to_bytes())?;
    Ok((types, btf))
}

/// Returns the marks about the packets' fields on which the program's numbers depend.
fn sees(builder: &Builder<'_>) -> Sees {
    let marks = section_data(builder, sees::SECTION);
    marks.map(|marks| Sees::parse(&marks)).unwrap_or_default()
}

/// Returns the symbols that the object uses and does not define, ordered by name.
fn undefined(builder: &Builder<'_>) -> Vec<Undefined> {
    let name = |symbol: &Symbol<'_>| String::from_utf8_lossy(symbol.name.as_slice()).into_owned();
    let used_at = |symbol: SymbolId| {
        builder.sections.iter().find_map(|section| {
            let SectionData::Relocation(relocations) = &section.data else {
                return None;
            };
            let place = relocations
                .iter()
                .find(|relocation| relocation.symbol == Some(symbol))?
                .r_offset;
            Some(references::instruction(
                builder,
                section.sh_info_section,
                place,
            ))
        })
    };
    let symbols = builder.symbols.iter();
    let unknown = symbols.filter(|symbol| {
        let is_defined =
            symbol.section.is_some() || !matches!(symbol.st_shndx, SHN_UNDEF | SHN_COMMON);
        !symbol.delete && !is_defined && !symbol.name.is_empty()
    });
    // A need of an omitted program does not matter.
    let unknown = unknown.filter_map(|symbol| {
        Some(Undefined {
            symbol: name(symbol),
            used_at: used_at(symbol.id())?,
        })
    });
    let mut undefined: Vec<Undefined> = unknown.collect();
    undefined.sort();
    undefined
}

/// Adds a table for the names of sections: clang keeps them in one table with the names of symbols,
/// and the ELF writer needs two.
fn add_section_names(builder: &mut Builder<'_>) {
    if !builder
        .sections
        .iter()
        .any(|section| matches!(section.data, SectionData::SectionString))
    {
        let section = builder.sections.add();
        section.name = b".shstrtab"[..].into();
        section.sh_type = SHT_STRTAB;
        section.sh_addralign = 1;
        section.data = SectionData::SectionString;
    }
}

/// Gives the sections of programs names that aya-obj knows, in the object and in its type
/// information, which is written into the object.
fn rename(
    builder: &mut Builder<'_>,
    mut types: Types,
    forgotten: &[Forgotten],
) -> Result<(), ElfError> {
    let mut names = HashMap::new();
    for (index, section) in builder
        .sections
        .iter_mut()
        .enumerate()
        .filter(|(_, section)| !section.delete)
    {
        let old = section.name.as_slice().to_vec();
        let mut name = String::from_utf8_lossy(&old).into_owned();
        if is_program(section) {
            name = format!("classifier/{index}");
            section.name = name.clone().into_bytes().into();
        }
        names.insert(old, name);
    }
    types.retain_sections(|name| names.contains_key(name));
    if let Some(ext) = section_data(builder, b".BTF.ext") {
        let ext = types::sections_renamed(&ext, &mut types, &names, forgotten)?;
        set_section_data(builder, b".BTF.ext", ext);
    }
    if find(builder, b".BTF").is_none() {
        let section = builder.sections.add();
        section.name = b".BTF"[..].into();
        section.sh_type = SHT_PROGBITS;
        section.sh_addralign = 4;
        section.data = SectionData::Data(Vec::new().into());
    }
    set_section_data(builder, b".BTF", types.to_bytes());
    Ok(())
}

fn find(builder: &Builder<'_>, name: &[u8]) -> Option<SectionId> {
    let section = builder
        .sections
        .iter()
        .find(|section| !section.delete && section.name.as_slice() == name)?;
    Some(section.id())
}

fn section_data(builder: &Builder<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let SectionData::Data(bytes) = &builder.sections.get(find(builder, name)?).data else {
        return None;
    };
    Some(bytes.as_slice().to_vec())
}

fn set_section_data(builder: &mut Builder<'_>, name: &[u8], data: Vec<u8>) {
    if let Some(section) = find(builder, name) {
        builder.sections.get_mut(section).data = SectionData::Data(data.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_elf_is_refused() {
        let prepared = prepare(b"not an object", Hook::Xdp, None, KernelOptions::NONE);
        assert!(matches!(prepared, Err(ElfError::NotElf)));
    }
}
