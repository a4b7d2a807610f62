//! The relocations of code. A linker writes at the place of a relocation, into the instruction
//! there and into the next one.

use object::build::elf::{Builder, Relocation, Section, SectionData, SectionId};
use object::elf::{R_BPF_64_32, R_BPF_64_64, SHF_EXECINSTR, STT_FUNC};

use crate::admit::instruction::LOAD_64;

/// The size of an instruction, in bytes.
pub const INSTRUCTION: u64 = 8;
/// A call of a function of the same program: its opcode, and the field of its registers.
const CALL: [u8; 2] = [0x85, 0x10];

/// A relocation at an instruction that takes no reference.
#[derive(Debug, PartialEq, Eq)]
pub struct Misplaced {
    pub section: String,
    /// The relocation's offset in the section, in bytes.
    pub offset: u64,
    /// The function at this offset, and the number of the instruction in it.
    pub at: Option<(String, usize)>,
}

/// Returns the relocations of code at unusual instructions. Compilers place relocations only at
/// loads of 64 bits and at calls.
pub fn misplaced(builder: &Builder<'_>) -> Vec<Misplaced> {
    let mut misplaced = Vec::new();
    for section in builder.sections.iter().filter(|section| !section.delete) {
        let (SectionData::Relocation(relocations), Some(target)) =
            (&section.data, section.sh_info_section)
        else {
            continue;
        };
        let code = builder.sections.get(target);
        if !is_code(code) {
            continue;
        }
        misplaced.extend(
            relocations
                .iter()
                .filter(|relocation| !fits(code, relocation))
                .map(|relocation| {
                    let section = String::from_utf8_lossy(code.name.as_slice()).into_owned();
                    let offset = relocation.r_offset;
                    Misplaced {
                        section,
                        offset,
                        at: instruction(builder, Some(target), offset),
                    }
                }),
        );
    }
    misplaced
}

/// Tells whether aya-obj treats a section as code.
fn is_code(section: &Section<'_>) -> bool {
    section.sh_flags & u64::from(SHF_EXECINSTR) != 0
        || section.name.as_slice().starts_with(b".text")
}

fn fits(code: &Section<'_>, relocation: &Relocation) -> bool {
    let SectionData::Data(data) = &code.data else {
        return false;
    };
    let at = usize::try_from(relocation.r_offset)
        .ok()
        .filter(|at| at.is_multiple_of(INSTRUCTION as usize));
    let Some([opcode, registers, ..]) = at.and_then(|at| data.as_slice().get(at..)) else {
        return false;
    };
    match relocation.r_type {
        R_BPF_64_64 => *opcode == LOAD_64,
        R_BPF_64_32 => [*opcode, *registers] == CALL,
        _ => false,
    }
}

/// Returns the function at an offset of a section, and the number of its instruction there.
pub fn instruction(
    builder: &Builder<'_>,
    section: Option<SectionId>,
    offset: u64,
) -> Option<(String, usize)> {
    let function = builder.symbols.iter().find(|function| {
        let range = function.st_value..function.st_value.saturating_add(function.st_size);
        function.st_type() == STT_FUNC && function.section == section && range.contains(&offset)
    })?;
    let name = String::from_utf8_lossy(function.name.as_slice()).into_owned();
    Some((name, ((offset - function.st_value) / INSTRUCTION) as usize))
}
