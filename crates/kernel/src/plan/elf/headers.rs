//! The table of an object's sections. Compilers put more into an object than its programs need: the
//! ELF library refuses unknown parts, and misreads the relocations of early compilers as
//! relocations without a target.

use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB, ELFMAG, EM_BPF, SHF_ALLOC, SHF_EXECINSTR, SHF_INFO_LINK,
    SHT_INIT_ARRAY, SHT_NOBITS, SHT_NOTE, SHT_NULL, SHT_PREINIT_ARRAY, SHT_PROGBITS, SHT_REL,
    SHT_RELA, SHT_STRTAB, SHT_SYMTAB, SHT_SYMTAB_SHNDX,
};

use crate::plan::elf::error::ElfError;

/// The places of the class and the byte order among the first bytes of a file.
const EI_CLASS: usize = 4;
const EI_DATA: usize = 5;
/// The places of the fields in the header of a file, in bytes.
const MACHINE: usize = 18;
const TABLE: usize = 40;
const COUNT: usize = 60;
const NAMES: usize = 62;
/// The size of a section's header, and the places of its fields, in bytes.
const HEADER: usize = 64;
const TYPE: usize = 4;
const FLAGS: usize = 8;
const LINK: usize = 40;

/// An object that the ELF library can read completely.
pub struct Readable {
    pub elf: Vec<u8>,
    /// The indices of the sections of unused types, and their types. The library takes these
    /// sections for data.
    pub strange: Vec<(usize, u32)>,
}

/// Makes an object readable. Fails with the kind of the file if it is not a BPF object.
pub fn readable(elf: &[u8]) -> Result<Readable, ElfError> {
    let mut elf = elf.to_vec();
    let (start, count, names) = place(&elf)?;
    let damaged = || ElfError::Damaged("the table of its sections is cut short");
    let end = count
        .checked_mul(HEADER)
        .and_then(|length| length.checked_add(start));
    let table = end
        .and_then(|end| elf.get_mut(start..end))
        .ok_or_else(damaged)?;
    let (headers, _) = table.as_chunks_mut::<HEADER>();
    // The tables of strings in use: the names of the symbols, and the names of the sections.
    let symbols = headers
        .iter()
        .filter(|header| word(header, TYPE) == SHT_SYMTAB);
    let mut strings: Vec<usize> = symbols.map(|header| word(header, LINK) as usize).collect();
    strings.push(names);
    let mut strange = Vec::new();
    for (index, header) in headers.iter_mut().enumerate() {
        let (kind, flags) = (word(header, TYPE), word(header, FLAGS));
        match kind {
            SHT_RELA if flags & (SHF_ALLOC | SHF_EXECINSTR) != 0 => return Err(ElfError::Addends),
            SHT_REL | SHT_RELA => set_word(header, FLAGS, flags | SHF_INFO_LINK),
            SHT_NULL | SHT_PROGBITS | SHT_SYMTAB | SHT_NOBITS | SHT_NOTE | SHT_SYMTAB_SHNDX => {}
            SHT_STRTAB if strings.contains(&index) => {}
            SHT_INIT_ARRAY..=SHT_PREINIT_ARRAY => {}
            _ => {
                strange.push((index, kind));
                set_word(header, TYPE, SHT_PROGBITS);
            }
        }
    }
    Ok(Readable { elf, strange })
}

/// Returns the offset in bytes at which the table of the sections begins, the number of sections,
/// and the index of the section that contains their names.
fn place(elf: &[u8]) -> Result<(usize, usize, usize), ElfError> {
    if elf.get(..ELFMAG.len()) != Some(&ELFMAG[..]) {
        return Err(ElfError::NotElf);
    }
    match (elf.get(EI_CLASS).copied(), elf.get(EI_DATA).copied()) {
        (_, Some(ELFDATA2MSB)) => return Err(ElfError::BigEndian),
        (Some(ELFCLASS64), Some(ELFDATA2LSB)) => {}
        _ => return Err(ElfError::NotBpf),
    }
    let header = elf
        .first_chunk::<HEADER>()
        .ok_or(ElfError::Damaged("its header is cut short"))?;
    let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    if half(MACHINE) != usize::from(EM_BPF) {
        return Err(ElfError::NotBpf);
    }
    let start = u64::from(word(header, TABLE)) | u64::from(word(header, TABLE + 4)) << 32;
    Ok((
        usize::try_from(start).unwrap_or(usize::MAX),
        half(COUNT),
        half(NAMES),
    ))
}

fn word(header: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn set_word(header: &mut [u8; HEADER], at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Vec<u8> {
        let mut elf = vec![0; 3 * HEADER];
        elf[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', ELFCLASS64, ELFDATA2LSB, 1, 0]);
        elf[MACHINE] = EM_BPF as u8;
        elf[TABLE] = HEADER as u8;
        elf[COUNT] = 2;
        elf
    }

    #[test]
    fn what_is_no_bpf_object_is_named() {
        assert!(readable(&object()).is_ok());
        let changed = |at: usize, byte: u8| {
            let mut elf = object();
            elf[at] = byte;
            readable(&elf)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert!(changed(EI_DATA, ELFDATA2MSB).contains("big-endian"));
        assert!(changed(MACHINE, 62).contains("not a 64-bit BPF object"));
        assert!(changed(0, 0).contains("not an ELF file"));
        assert!(changed(COUNT, 9).contains("cut short"));
    }

    #[test]
    fn unknown_sections_become_data_and_relocations_get_their_target() {
        let mut elf = object();
        elf[HEADER + TYPE..HEADER + TYPE + 4].copy_from_slice(&0x6fff_4c03_u32.to_le_bytes());
        elf[2 * HEADER + TYPE] = SHT_REL as u8;
        let Readable { elf, strange } = readable(&elf).unwrap();
        assert_eq!(strange, [(0, 0x6fff_4c03)]);
        assert_eq!(
            (elf[HEADER + TYPE], elf[2 * HEADER + FLAGS]),
            (1, SHF_INFO_LINK as u8)
        );
    }
}
