//! Objects as files of a configuration.

/// The first bytes of an ELF file.
pub const ELF: &[u8] = b"\x7fELF";
/// The sections that no loader of programs reads: the debug information is several times as long as
/// all others, and type information needs no linker.
const UNUSED: [&[u8]; 3] = [b".debug_", b".rel.debug_", b".rel.BTF"];
/// The places of fields in the header of a file, in bytes.
const KIND: usize = 4;
const TABLE: usize = 40;
const COUNT: usize = 60;
const NAMES: usize = 62;
/// The kind of a file of 64 bits and the usual order of bytes.
const LITTLE_64: [u8; 2] = [2, 1];
const HEADER: usize = 64;
/// The places of fields in the header of a section, whose length is that of the file's header.
const TYPE: usize = 4;
const OFFSET: usize = 24;
const SIZE: usize = 32;
const LINKS: usize = 40;
const ALIGNMENT: usize = 48;
const ENTRY: usize = 56;
const PROGBITS: u32 = 1;
const NOBITS: u32 = 8;
/// The largest alignment of a section that fits into a new file.
const LARGEST_ALIGNMENT: usize = 4096;

/// Returns an object without the content of unused sections. Each other section keeps its number.
/// Any other file stays unchanged: the daemon reports what is wrong with it.
pub fn slim(elf: Vec<u8>) -> Vec<u8> {
    slimmed(&elf).unwrap_or(elf)
}

fn slimmed(elf: &[u8]) -> Option<Vec<u8>> {
    let (head, _) = elf.split_first_chunk::<HEADER>()?;
    if head[KIND..KIND + 2] != LITTLE_64 {
        return None;
    }
    let count = usize::from(half(head, COUNT));
    let mut table: Vec<[u8; HEADER]> = Vec::with_capacity(count);
    let start = usize::try_from(long(head, TABLE)).ok()?;
    for index in 0..count {
        table.push(
            *elf.get(start.checked_add(index * HEADER)?..)?
                .first_chunk()?,
        );
    }
    let content = |header: &[u8; HEADER]| {
        let [offset, size] = [OFFSET, SIZE].map(|field| usize::try_from(long(header, field)).ok());
        elf.get(offset?..offset?.checked_add(size?)?)
    };
    let names = content(table.get(usize::from(half(head, NAMES)))?)?;
    let mut slim = head.to_vec();
    for header in &mut table {
        let name = names.get(word(header, 0) as usize..)?;
        if UNUSED.iter().any(|unused| name.starts_with(unused)) {
            header[TYPE..TYPE + 4].copy_from_slice(&PROGBITS.to_le_bytes());
            header[OFFSET..OFFSET + 8].copy_from_slice(&(HEADER as u64).to_le_bytes());
            header[SIZE..SIZE + 8].fill(0);
            header[LINKS..LINKS + 8].fill(0);
            header[ENTRY..ENTRY + 8].fill(0);
        } else if word(header, TYPE) != NOBITS {
            let content = content(header)?;
            let alignment = usize::try_from(long(header, ALIGNMENT)).ok()?;
            if alignment > LARGEST_ALIGNMENT {
                return None;
            }
            slim.resize(slim.len().next_multiple_of(alignment.max(1)), 0);
            header[OFFSET..OFFSET + 8].copy_from_slice(&(slim.len() as u64).to_le_bytes());
            slim.extend_from_slice(content);
        }
    }
    slim.resize(slim.len().next_multiple_of(8), 0);
    let start = slim.len() as u64;
    slim[TABLE..TABLE + 8].copy_from_slice(&start.to_le_bytes());
    slim.extend(table.concat());
    (slim.len() < elf.len()).then_some(slim)
}

fn half(bytes: &[u8; HEADER], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8; HEADER], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an object of a section for names, and of sections with these names, each with 100
    /// bytes of its number.
    fn object(sections: &[&str]) -> Vec<u8> {
        let mut names = vec![0];
        let mut elf = vec![0; HEADER];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut table = vec![[0; HEADER]];
        for (index, name) in sections.iter().enumerate() {
            let mut header = [0; HEADER];
            header[..4].copy_from_slice(&(names.len() as u32).to_le_bytes());
            header[TYPE] = 1;
            header[OFFSET..OFFSET + 8].copy_from_slice(&(elf.len() as u64).to_le_bytes());
            header[SIZE] = 100;
            header[ALIGNMENT] = 8;
            names.extend(name.bytes().chain([0]));
            elf.extend([index as u8; 100]);
            table.push(header);
        }
        table[0][OFFSET..OFFSET + 8].copy_from_slice(&(elf.len() as u64).to_le_bytes());
        table[0][SIZE..SIZE + 8].copy_from_slice(&(names.len() as u64).to_le_bytes());
        elf.extend(names);
        let start = (elf.len() as u64).to_le_bytes();
        elf[TABLE..TABLE + 8].copy_from_slice(&start);
        elf[COUNT] = table.len() as u8;
        elf.extend(table.concat());
        elf
    }

    #[test]
    fn debug_information_is_left_out_and_all_else_stays() {
        let elf = object(&[
            "xdp",
            ".debug_info",
            ".rel.debug_info",
            "license",
            ".rel.BTF.ext",
        ]);
        let slim = slim(elf.clone());
        // Sections begin at multiples of their alignments.
        assert!(
            elf.len() - slim.len() > 300 - 3 * 8,
            "{} {}",
            elf.len(),
            slim.len()
        );
        let table = u64::from_le_bytes(*slim[TABLE..].first_chunk().unwrap()) as usize;
        let header = |index: usize| -> [u8; HEADER] {
            *slim[table + index * HEADER..].first_chunk().unwrap()
        };
        for (index, number) in [(1, 0_u8), (4, 3)] {
            let (offset, size) = (
                long(&header(index), OFFSET) as usize,
                long(&header(index), SIZE) as usize,
            );
            assert_eq!(slim[offset..offset + size], [number; 100]);
            assert_eq!(offset % 8, 0);
        }
        for index in [2, 3, 5] {
            assert_eq!(
                (long(&header(index), SIZE), word(&header(index), TYPE)),
                (0, PROGBITS)
            );
        }
    }

    #[test]
    fn files_of_other_kinds_stay_as_they_are() {
        let small = object(&["xdp"]);
        assert_eq!(slim(small.clone()), small);
        let mut damaged = object(&[".debug_info"]);
        damaged[COUNT] = 9;
        assert_eq!(slim(damaged.clone()), damaged);
        assert_eq!(slim(b"\x7fELF".to_vec()), b"\x7fELF");
    }
}
