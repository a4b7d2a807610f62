//! The type information of an object in the form of bytes. This module renames sections, and
//! removes parts that the kernel and aya-obj refuse.

use std::collections::HashMap;
use std::ops::Range;

use crate::plan::elf::error::ElfError;

/// The size of `struct btf_header` and of `struct btf_type`, in bytes.
const HEADER: usize = 24;
pub const TYPE: usize = 12;
/// Kinds of types.
pub const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
pub const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// A struct or union without its members.
const FORWARD: u32 = 7;
pub const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;
pub const VARIABLE: u32 = 14;
pub const SECTION: u32 = 15;

/// A function of the object that nothing calls.
#[derive(Debug)]
pub struct Forgotten {
    pub section: Vec<u8>,
    /// The place of the function in the section, in bytes.
    pub code: Range<u64>,
}

/// The parts of `.BTF`.
#[derive(Debug)]
pub struct Types {
    pub types: Vec<u8>,
    strings: Vec<u8>,
    /// The offset of each type in `types`. The type with id `i` is at `i - 1`.
    starts: Vec<usize>,
}

impl Types {
    /// Splits the section into its parts, which [`Btf`](twinprobe_ebpf_common::Btf) has parsed.
    pub fn read(btf: &[u8]) -> Result<Self, ElfError> {
        let header = word(btf, 4)? as usize;
        let part = |at: usize| -> Result<&[u8], ElfError> {
            let start = header
                .checked_add(word(btf, at)? as usize)
                .ok_or(ElfError::DamagedBtf)?;
            let end = start
                .checked_add(word(btf, at + 4)? as usize)
                .ok_or(ElfError::DamagedBtf)?;
            btf.get(start..end).ok_or(ElfError::DamagedBtf)
        };
        let (types, strings) = (part(8)?.to_vec(), part(16)?.to_vec());
        let (mut starts, mut at) = (Vec::new(), 0);
        while at < types.len() {
            starts.push(at);
            let info = word(&types, at + 4)?;
            let count = (info & 0xffff) as usize;
            at += TYPE
                + match info >> 24 & 0x1f {
                    INT | VARIABLE | 17 => 4,
                    ARRAY => 12,
                    STRUCT | UNION | SECTION | 19 => 12 * count,
                    6 | PROTOTYPE => 8 * count,
                    _ => 0,
                };
        }
        (at == types.len())
            .then_some(Self {
                types,
                strings,
                starts,
            })
            .ok_or(ElfError::DamagedBtf)
    }

    /// Returns the type information of an object that has none: it contains a single type, because
    /// the kernel refuses empty type information.
    pub fn none() -> Self {
        let mut types = Vec::new();
        for number in [1, INT << 24, 1, 8] {
            types.extend_from_slice(&u32::to_le_bytes(number));
        }
        Self {
            types,
            strings: b"\0char\0".to_vec(),
            starts: vec![0],
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for number in [HEADER as u32, 0, types, types, strings] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.strings);
        bytes
    }

    /// Returns the number, the kind and the place of each type.
    pub fn each(&self) -> impl Iterator<Item = (u32, u32, usize)> {
        let starts = self.starts.iter().enumerate();
        starts.map(|(index, at)| (index as u32 + 1, self.word(at + 4) >> 24 & 0x1f, *at))
    }

    /// Returns the names of the types that are declared without a definition, by the numbers of the
    /// types.
    pub fn declared(&self) -> HashMap<u32, String> {
        let forward = self.each().filter(|(_, kind, _)| *kind == FORWARD);
        let named = forward.map(|(id, _, at)| {
            (
                id,
                String::from_utf8_lossy(self.text(self.word(at))).into_owned(),
            )
        });
        named.collect()
    }

    /// Returns the number at this offset of the types.
    pub fn word(&self, at: usize) -> u32 {
        word(&self.types, at).unwrap_or(0)
    }

    pub fn set_word(&mut self, at: usize, value: u32) {
        if let Some(place) = self.types.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Returns the kind and the place of a type, by its number.
    pub fn find(&self, id: u32) -> Option<(u32, usize)> {
        let at = *self.starts.get((id as usize).checked_sub(1)?)?;
        Some((self.word(at + 4) >> 24 & 0x1f, at))
    }

    /// Returns the offsets of the members, variables or parameters of a type.
    pub fn parts(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let count = (self.word(at + 4) & 0xffff) as usize;
        (0..count).map(move |part| at + TYPE + 12 * part)
    }

    /// Returns the string at this offset.
    pub fn text(&self, offset: u32) -> &[u8] {
        text(&self.strings, offset)
    }

    /// Adds a string, and returns its offset.
    pub fn add_text(&mut self, text: &str) -> u32 {
        let offset = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        offset
    }

    /// Removes bytes from the types. The types keep their numbers.
    pub fn cut(&mut self, range: Range<usize>) {
        let length = range.len();
        self.starts
            .iter_mut()
            .filter(|start| **start >= range.end)
            .for_each(|start| *start -= length);
        self.types.drain(range);
    }

    /// Makes a section an empty struct, because the kernel refuses a section that the object does
    /// not have.
    pub fn forget_section(&mut self, at: usize) {
        let end = self.parts(at).last().map_or(at + TYPE, |last| last + 12);
        self.set_word(at, 0);
        self.set_word(at + 4, STRUCT << 24);
        self.set_word(at + 8, 0);
        self.cut(at + TYPE..end);
    }

    /// Drops all other sections.
    pub fn retain_sections(&mut self, keep: impl Fn(&[u8]) -> bool) {
        let lost = |types: &Self| {
            let mut sections = types.each().filter(|(_, kind, _)| *kind == SECTION);
            sections
                .find(|(.., at)| !keep(types.text(types.word(*at))))
                .map(|(.., at)| at)
        };
        while let Some(at) = lost(self) {
            self.forget_section(at);
        }
    }

    /// Renames the slots of prog-arrays (`__array(values, int (void *))`), because aya-obj treats
    /// all `values` as maps.
    pub fn rename_slots_of_programs(&mut self) {
        let structs = self.each().filter(|(_, kind, _)| *kind == STRUCT);
        let members = structs.flat_map(|(_, _, at)| self.parts(at));
        let slots = members.filter(|at| {
            self.text(self.word(*at)) == b"values" && self.leads_to_function(self.word(at + 4))
        });
        let slots: Vec<usize> = slots.collect();
        if slots.is_empty() {
            return;
        }
        let name = self.add_text(PROGRAMS);
        slots.into_iter().for_each(|at| self.set_word(at, name));
    }

    /// Tells whether a type is an array of pointers to functions.
    fn leads_to_function(&self, id: u32) -> bool {
        let Some((ARRAY, at)) = self.find(id) else {
            return false;
        };
        let Some((POINTER, at)) = self.find(self.word(at + TYPE)) else {
            return false;
        };
        matches!(self.find(self.word(at + 8)), Some((PROTOTYPE, _)))
    }
}

/// The new name of the slots of a prog-array in the type information.
const PROGRAMS: &str = "programs";

/// Returns `.BTF.ext` with new names of sections. Each table begins with the size of its records;
/// for each section follow a name, a count and the records. A section without a new name is
/// dropped.
pub fn sections_renamed(
    ext: &[u8],
    types: &mut Types,
    names: &HashMap<Vec<u8>, String>,
    forgotten: &[Forgotten],
) -> Result<Vec<u8>, ElfError> {
    /// The size of `struct btf_ext_header` with its three tables.
    const FULL: u32 = 32;
    /// The place in the header of the table of CO-RE relocations.
    const RELOCATIONS: usize = 24;
    let header = word(ext, 4)? as usize;
    let (mut tables, mut places) = (Vec::new(), Vec::new());
    let mut offsets: HashMap<String, u32> = HashMap::new();
    for field in [8, 16, RELOCATIONS] {
        let start = tables.len() as u32;
        let table = table(ext, header, field)?;
        if !table.is_empty() {
            let record = word(table, 0)? as usize;
            tables.extend_from_slice(&table[..4]);
            let mut at = 4;
            while at < table.len() {
                let (name, count) = (word(table, at)?, word(table, at + 4)? as usize);
                let next = count
                    .checked_mul(record)
                    .and_then(|bytes| bytes.checked_add(at + 8));
                let next = next
                    .filter(|next| *next <= table.len())
                    .ok_or(ElfError::DamagedBtf)?;
                if let Some(new) = names.get(types.text(name)) {
                    let forgotten = if field == RELOCATIONS { forgotten } else { &[] };
                    let records = kept(&table[at + 8..next], record, types.text(name), forgotten);
                    if !records.is_empty() {
                        let offset = *offsets
                            .entry(new.clone())
                            .or_insert_with(|| types.add_text(new));
                        tables.extend_from_slice(&offset.to_le_bytes());
                        tables.extend_from_slice(&(records.len() as u32).to_le_bytes());
                        tables.extend(records.concat());
                    }
                }
                at = next;
            }
        }
        // A table that has only the size of its records does not count.
        if tables.len() as u32 == start + 4 {
            tables.truncate(start as usize);
        }
        places.push((start, tables.len() as u32 - start));
    }
    let mut renamed = vec![0x9f, 0xeb, 1, 0];
    renamed.extend_from_slice(&FULL.to_le_bytes());
    for (start, length) in places {
        renamed.extend_from_slice(&start.to_le_bytes());
        renamed.extend_from_slice(&length.to_le_bytes());
    }
    renamed.extend_from_slice(&tables);
    Ok(renamed)
}

/// Returns the table of `.BTF.ext` whose place and length are at `field` in the header; no bytes if
/// the header has no such field.
fn table(ext: &[u8], header: usize, field: usize) -> Result<&[u8], ElfError> {
    let length = if field + 8 <= header {
        word(ext, field + 4)? as usize
    } else {
        0
    };
    if length == 0 {
        return Ok(&[]);
    }
    let begin = header
        .checked_add(word(ext, field)? as usize)
        .ok_or(ElfError::DamagedBtf)?;
    let end = begin.checked_add(length).ok_or(ElfError::DamagedBtf)?;
    ext.get(begin..end).ok_or(ElfError::DamagedBtf)
}

/// Returns the records of a section, of this many bytes each, without those of forgotten functions.
fn kept<'a>(
    records: &'a [u8],
    size: usize,
    section: &[u8],
    forgotten: &[Forgotten],
) -> Vec<&'a [u8]> {
    let is_gone = |record: &&[u8]| {
        let place = word(record, 0).unwrap_or(0).into();
        forgotten
            .iter()
            .any(|of| of.section == section && of.code.contains(&place))
    };
    records
        .chunks_exact(size.max(1))
        .filter(|record| !is_gone(record))
        .collect()
}

fn word(bytes: &[u8], at: usize) -> Result<u32, ElfError> {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    four.map(|four| u32::from_le_bytes(*four))
        .ok_or(ElfError::DamagedBtf)
}

fn text(strings: &[u8], offset: u32) -> &[u8] {
    let rest = strings.get(offset as usize..).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::Btf;

    use super::*;

    #[test]
    fn an_object_without_types_gets_one() {
        let bytes = Types::none().to_bytes();
        assert_eq!(Btf::parse(&bytes).unwrap().find("char"), Some(1));
        assert_eq!(Types::read(&bytes).unwrap().to_bytes(), bytes);
    }

    #[test]
    fn damaged_records_are_an_error() {
        let mut ext = vec![0_u8; 32];
        ext[4] = 24;
        ext[12] = 200;
        let renamed = sections_renamed(&ext, &mut Types::none(), &HashMap::new(), &[]);
        assert!(matches!(renamed, Err(ElfError::DamagedBtf)));
    }

    #[test]
    fn records_of_sections_without_a_name_go() {
        let mut types = Types::none();
        let (kept, lost) = (types.add_text("xdp"), types.add_text("tc"));
        let mut ext = vec![0x9f, 0xeb, 1, 0];
        let table = [8, lost, 1, 7, 7, kept, 1, 9, 9];
        for number in [24, 0, 4 * table.len() as u32, 0, 0]
            .into_iter()
            .chain(table)
        {
            ext.extend_from_slice(&u32::to_le_bytes(number));
        }
        let names = HashMap::from([(b"xdp".to_vec(), "classifier/1".to_owned())]);
        let renamed = sections_renamed(&ext, &mut types, &names, &[]).unwrap();
        let words: Vec<u32> = (4..renamed.len())
            .step_by(4)
            .map(|at| word(&renamed, at).unwrap())
            .collect();
        assert_eq!(words[..7], [32, 0, 20, 20, 0, 20, 0]);
        assert_eq!((words[7], &words[9..]), (8, &[1, 9, 9][..]));
        assert_eq!(types.text(words[8]), b"classifier/1");
    }
}
