//! The reasons why an object is refused before its programs are looked at.

use twinprobe_ebpf_common::BtfError;

use crate::plan::elf::programs::Unfit;

/// The most bytes that globals and code of one object may have together. The limit keeps a huge
/// `.bss` from being allocated.
pub const MAX_SECTION_BYTES: u64 = 64 << 20;

/// The most bytes that a section may ask to be aligned to: the object is written again with this
/// many bytes between its sections.
pub const MAX_ALIGNMENT: u64 = 4096;

/// The most bytes of the name of a section or symbol. The names of an object may overlap, so that
/// together they are longer than the object.
pub const MAX_NAME_BYTES: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("the object is not an ELF file")]
    NotElf,
    #[error("the object can't be read")]
    Elf(#[from] object::build::Error),
    #[error("the object is not a 64-bit BPF object; compile it with clang -target bpf")]
    NotBpf,
    #[error(
        "the object is big-endian, for machines of another kind; compile it with clang -target bpfel"
    )]
    BigEndian,
    #[error("the object is damaged: {0}")]
    Damaged(&'static str),
    #[error("the object has relocations with addends (RELA); compilers for BPF do not write them")]
    Addends,
    #[error("the program needs section {name}, which is of the unknown type {kind:#x}")]
    Strange { name: String, kind: u32 },
    #[error(
        "section {name} has {size} bytes; globals and code together may have {} MiB",
        MAX_SECTION_BYTES >> 20
    )]
    TooLarge { name: String, size: u64 },
    #[error(
        "the object has maps in SEC(\".maps\") and no type information (BTF); compile it with -g"
    )]
    NoBtf,
    #[error("section {name} has an alignment of {bytes} bytes; the limit is {MAX_ALIGNMENT}")]
    Alignment { name: String, bytes: u64 },
    #[error("a name in the object is longer than {MAX_NAME_BYTES} bytes")]
    LongName,
    #[error("sections of the object overlap")]
    Overlap,
    #[error("the object's BTF is damaged")]
    DamagedBtf,
    #[error("the object's type information can't be read")]
    Btf(#[from] BtfError),
    #[error(
        "functions are in several sections ({0}); compile without -ffunction-sections, or put them into one"
    )]
    ManyTexts(String),
    #[error("the kernel's configuration has no {0}; declare it with __weak, then it is 0")]
    NoOption(String),
    #[error("{name} can't have the value of the kernel's configuration: {reason}")]
    Option { name: String, reason: String },
    #[error(transparent)]
    Unfit(#[from] Unfit),
}
