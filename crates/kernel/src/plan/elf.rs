//! The preparation of clang's objects for aya-obj: checks of the fields that aya-obj takes on trust, and new names for
//! the TC sections, because aya-obj 0.3 knows only `classifier`.

mod constants;
mod references;

use std::collections::BTreeMap;

use object::build::elf::{Builder, SectionData, SectionId, Symbol, SymbolId};
use object::elf::{EM_BPF, SHF_EXECINSTR, SHN_UNDEF, SHT_NOBITS, SHT_STRTAB, STT_SECTION};
use twinprobe_ebpf_common::{Btf, BtfError};

pub use self::references::Misplaced;
use crate::plan::sees::{self, Sees};

/// The most bytes that globals and code of one object may have together. The limit keeps a huge `.bss` from being
/// allocated.
const MAX_SECTION_BYTES: u64 = 64 << 20;

/// The most bytes that a section may ask to be aligned to: the object is written again with so many between its sections.
const MAX_ALIGNMENT: u64 = 4096;

/// The most bytes of the name of a section or symbol. The names of an object may lie over each other, so that together
/// they are longer than it.
const MAX_NAME_BYTES: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("the object is no ELF file")]
    Elf(#[from] object::build::Error),
    #[error("the object is no little-endian 64-bit BPF object")]
    NotBpf,
    #[error(
        "section {name} has {size} bytes; globals and code together may have {} MiB",
        MAX_SECTION_BYTES >> 20
    )]
    TooLarge { name: String, size: u64 },
    #[error(
        "SEC(\"{0}\") holds legacy map definitions; define maps with BTF in SEC(\".maps\") (__uint, __type)"
    )]
    LegacyMaps(String),
    #[error("the object has no BTF; it must be compiled with debug information (-g)")]
    NoBtf,
    #[error("section {name} asks to lie at multiples of {bytes} bytes; {MAX_ALIGNMENT} are the limit")]
    Alignment { name: String, bytes: u64 },
    #[error("a name in the object is longer than {MAX_NAME_BYTES} bytes")]
    LongName,
    #[error("sections of the object lie over each other")]
    Overlap,
    #[error("the object's BTF is damaged")]
    DamagedBtf,
    #[error("the object's type information can't be read")]
    Btf(#[from] BtfError),
}

/// A pointer to a map in the definition of another one, which is a map of maps.
pub struct MapPointer {
    pub outer: String,
    /// The offset of the pointer in the outer map's definition, in bytes.
    pub offset: u64,
    pub inner: String,
}

/// A symbol that is used without a definition.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undefined {
    pub symbol: String,
    /// The function that uses it first, and the number of the instruction there.
    pub used_at: Option<(String, usize)>,
}

/// An object that aya-obj can parse, and what aya-obj does not read of it.
pub struct Prepared {
    pub elf: Vec<u8>,
    /// The pointers between map definitions.
    pub pointers: Vec<MapPointer>,
    /// There is no linker, and kernel functions are not resolved.
    pub undefined: Vec<Undefined>,
    /// Relocations at instructions that take no reference.
    pub misplaced: Vec<Misplaced>,
    /// What the program says that its numbers depend on.
    pub sees: Sees,
}

/// Renames every TC section to `classifier/...` and puts constants together, in the ELF and in its BTF.
pub fn prepare(elf: &[u8]) -> Result<Prepared, ElfError> {
    let mut builder = Builder::read(elf)?;
    if !builder.is_64 || builder.header.e_machine != EM_BPF || builder.endian != object::Endianness::Little {
        return Err(ElfError::NotBpf);
    }
    let names = builder.sections.iter().map(|section| section.name.as_slice());
    let mut names = names.chain(builder.symbols.iter().map(|symbol| symbol.name.as_slice()));
    if names.any(|name| name.len() > MAX_NAME_BYTES) {
        return Err(ElfError::LongName);
    }
    let in_file = builder.sections.iter().filter(|section| section.sh_type != SHT_NOBITS);
    if in_file.fold(0, |sum: u64, section| sum.saturating_add(section.sh_size)) > elf.len() as u64 {
        return Err(ElfError::Overlap);
    }
    let misplaced = references::misplaced(&builder);
    let sees = sees(&builder);
    let mut total = 0_u64;
    let mut renamed = Vec::new();
    for (index, section) in builder.sections.iter_mut().enumerate() {
        let name = String::from_utf8_lossy(section.name.as_slice()).into_owned();
        if section.is_alloc() || section.sh_type == SHT_NOBITS {
            total = total.saturating_add(section.sh_size);
            if total > MAX_SECTION_BYTES {
                return Err(ElfError::TooLarge { name, size: section.sh_size });
            }
        }
        if section.sh_addralign > MAX_ALIGNMENT {
            return Err(ElfError::Alignment { name, bytes: section.sh_addralign });
        }
        if name.starts_with("maps") {
            return Err(ElfError::LegacyMaps(name));
        }
        // aya-obj takes the linkage of variables on trust, and the compiled code may then jump anywhere.
        if let (".BTF", SectionData::Data(btf)) = (name.as_str(), &section.data) {
            Btf::parse(btf.as_slice())?;
        }
        if is_tc(&name) {
            let new = format!("classifier/{index}");
            section.name = new.clone().into_bytes().into();
            renamed.push((name, new));
        }
    }
    constants::gather(&mut builder);
    let undefined = undefined(&builder);
    let pointers = name_static_maps(&mut builder);
    rename_in_btf(&mut builder, &renamed)?;
    add_section_names(&mut builder);
    let mut out = Vec::with_capacity(elf.len() + 256);
    builder.write(&mut out)?;
    Ok(Prepared { elf: out, pointers, undefined, misplaced, sees })
}

/// Returns what the program says that its numbers depend on.
fn sees(builder: &Builder<'_>) -> Sees {
    let section = builder.sections.iter().find(|section| section.name.as_slice() == sees::SECTION);
    match section.map(|section| &section.data) {
        Some(SectionData::Data(marks)) => Sees::parse(marks.as_slice()),
        _ => Sees::default(),
    }
}

/// Returns the symbols that the object uses and does not define, ordered by name.
fn undefined(builder: &Builder<'_>) -> Vec<Undefined> {
    let name = |symbol: &Symbol<'_>| String::from_utf8_lossy(symbol.name.as_slice()).into_owned();
    let used_at = |symbol: SymbolId| {
        builder.sections.iter().find_map(|section| {
            let SectionData::Relocation(relocations) = &section.data else { return None };
            let place = relocations.iter().find(|relocation| relocation.symbol == Some(symbol))?.r_offset;
            references::instruction(builder, section.sh_info_section, place)
        })
    };
    let symbols = builder.symbols.iter();
    let unknown = symbols
        .filter(|symbol| symbol.section.is_none() && symbol.st_shndx == SHN_UNDEF && !symbol.name.is_empty());
    let mut undefined: Vec<Undefined> =
        unknown.map(|symbol| Undefined { symbol: name(symbol), used_at: used_at(symbol.id()) }).collect();
    undefined.sort();
    undefined
}

/// The size and the symbol of each map definition in `.maps`, by the definition's offset in the section, in bytes.
type Definitions = BTreeMap<u64, (u64, SymbolId)>;

/// Makes references to `static` maps name the map's own symbol: clang names such a map by its section and its place in
/// it, and aya-obj would take any map of that section. Returns the pointers between map definitions.
fn name_static_maps(builder: &mut Builder<'_>) -> Vec<MapPointer> {
    let Some(maps) = builder.sections.iter().find(|section| section.name.as_slice() == b".maps") else {
        return Vec::new();
    };
    let maps = maps.id();
    let in_maps = || builder.symbols.iter().filter(|symbol| symbol.section == Some(maps));
    let section_symbols: Vec<SymbolId> =
        in_maps().filter(|symbol| symbol.st_type() == STT_SECTION).map(|symbol| symbol.id()).collect();
    let definitions: Definitions = in_maps()
        .filter(|symbol| symbol.st_type() != STT_SECTION && symbol.st_size > 0)
        .map(|symbol| (symbol.st_value, (symbol.st_size, symbol.id())))
        .collect();

    let (mut named, mut pointers) = (Vec::new(), Vec::new());
    let name = |id| String::from_utf8_lossy(builder.symbols.get(id).name.as_slice()).into_owned();
    for section in &builder.sections {
        let (SectionData::Relocation(relocations), Some(target)) = (&section.data, section.sh_info_section)
        else {
            continue;
        };
        for (index, relocation) in relocations.iter().enumerate() {
            let Some(mut symbol) = relocation.symbol else { continue };
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
                pointers.push(MapPointer { outer: name(outer), offset, inner: name(symbol) });
            }
        }
    }
    for (section, index, symbol) in named {
        if let SectionData::Relocation(relocations) = &mut builder.sections.get_mut(section).data {
            relocations[index].symbol = Some(symbol);
        }
    }
    pointers
}

/// Reads the number that stands at the place of a relocation: a pointer in `.maps`, the immediate of an instruction in
/// code.
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

/// Returns the map definition that covers `place`, an offset in `.maps`, and the offset of `place` in the definition.
fn definition(definitions: &Definitions, place: u64) -> Option<(u64, SymbolId)> {
    let (start, (size, symbol)) = definitions.range(..=place).next_back()?;
    (place - start < *size).then_some((place - start, *symbol))
}

/// Adds a table for the names of sections: clang keeps them in one table with the names of symbols, and the ELF writer
/// needs two.
fn add_section_names(builder: &mut Builder<'_>) {
    if !builder.sections.iter().any(|section| matches!(section.data, SectionData::SectionString)) {
        let section = builder.sections.add();
        section.name = b".shstrtab"[..].into();
        section.sh_type = SHT_STRTAB;
        section.sh_addralign = 1;
        section.data = SectionData::SectionString;
    }
}

/// Tells whether a section holds a TC program, by the names that libbpf and older loaders use.
fn is_tc(name: &str) -> bool {
    matches!(name.split('/').next(), Some("tc" | "tcx" | "classifier"))
}

/// Renames sections in the BTF: appends the new names to the strings of `.BTF`, and makes the records of `.BTF.ext`,
/// which name a section by an offset into these strings, point to them.
fn rename_in_btf(builder: &mut Builder<'_>, renamed: &[(String, String)]) -> Result<(), ElfError> {
    let mut btf = section_data(builder, b".BTF").ok_or(ElfError::NoBtf)?;
    if renamed.is_empty() {
        return Ok(());
    }
    let header = u32_at(&btf, 4)? as usize;
    let (string_offset, string_len) = (u32_at(&btf, 16)? as usize, u32_at(&btf, 20)? as usize);
    let strings_end = header + string_offset + string_len;
    if strings_end != btf.len() {
        return Err(ElfError::DamagedBtf);
    }
    let strings = btf[header + string_offset..].to_vec();
    let mut offsets = Vec::new();
    for (old, new) in renamed {
        let Some(old) = find_string(&strings, old) else { continue };
        offsets.push((old, (btf.len() - header - string_offset) as u32));
        btf.extend_from_slice(new.as_bytes());
        btf.push(0);
    }
    let string_len = (btf.len() - header - string_offset) as u32;
    btf[20..24].copy_from_slice(&string_len.to_le_bytes());
    set_section_data(builder, b".BTF", btf);
    if let Some(mut ext) = section_data(builder, b".BTF.ext") {
        repoint_sections(&mut ext, &offsets)?;
        set_section_data(builder, b".BTF.ext", ext);
    }
    Ok(())
}

/// Replaces the name offsets in the function, line and CO-RE records. Each table has `record size`, then for each
/// section `name offset, count, records`.
fn repoint_sections(ext: &mut [u8], offsets: &[(u32, u32)]) -> Result<(), ElfError> {
    let header = u32_at(ext, 4)? as usize;
    let tables = [8, 16, 24].into_iter().filter(|field| field + 8 <= header);
    for field in tables {
        let (start, len) = (u32_at(ext, field)? as usize, u32_at(ext, field + 4)? as usize);
        if len == 0 {
            continue;
        }
        let end = header + start + len;
        let record = u32_at(ext, header + start)? as usize;
        let mut at = header + start + 4;
        while at < end {
            let name = u32_at(ext, at)?;
            let count = u32_at(ext, at + 4)? as usize;
            if let Some((_, new)) = offsets.iter().find(|(old, _)| *old == name) {
                ext[at..at + 4].copy_from_slice(&new.to_le_bytes());
            }
            at = count
                .checked_mul(record)
                .and_then(|bytes| bytes.checked_add(at + 8))
                .ok_or(ElfError::DamagedBtf)?;
        }
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, ElfError> {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    four.map(|four| u32::from_le_bytes(*four)).ok_or(ElfError::DamagedBtf)
}

/// Returns the offset at which a string table holds exactly `wanted`.
fn find_string(strings: &[u8], wanted: &str) -> Option<u32> {
    let mut at = 0;
    for string in strings.split(|byte| *byte == 0) {
        if string == wanted.as_bytes() {
            return u32::try_from(at).ok();
        }
        at += string.len() + 1;
    }
    None
}

fn section_data(builder: &Builder<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let section = builder.sections.iter().find(|section| section.name.as_slice() == name)?;
    let SectionData::Data(bytes) = &section.data else { return None };
    Some(bytes.as_slice().to_vec())
}

fn set_section_data(builder: &mut Builder<'_>, name: &[u8], data: Vec<u8>) {
    let section = builder.sections.iter_mut().find(|section| section.name.as_slice() == name);
    if let Some(section) = section {
        section.data = SectionData::Data(data.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tc_sections_are_recognised_by_their_first_part() {
        for name in ["tc", "tc/ingress", "tcx/egress", "classifier", "classifier/x"] {
            assert!(is_tc(name), "{name}");
        }
        for name in ["xdp", "tcp", "tc_prog", ".text", ""] {
            assert!(!is_tc(name), "{name}");
        }
    }

    #[test]
    fn strings_are_found_whole() {
        let strings = b"\0xtc\0tc\0";
        assert_eq!(find_string(strings, "tc"), Some(5));
        assert_eq!(find_string(strings, "c"), None);
    }

    #[test]
    fn damaged_records_are_an_error() {
        let mut ext = vec![0_u8; 32];
        ext[4] = 24;
        ext[12] = 200;
        assert!(matches!(repoint_sections(&mut ext, &[]), Err(ElfError::DamagedBtf)));
    }

    #[test]
    fn what_is_not_elf_is_refused() {
        assert!(matches!(prepare(b"not an object"), Err(ElfError::Elf(_))));
    }
}
