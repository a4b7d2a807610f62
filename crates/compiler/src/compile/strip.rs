//! Removal of the debug information from objects. Clang needs the debug information to make BTF
//! with the lines of the source, and puts the texts of all headers into it. The debug information
//! is about twenty times as long as the rest of the object, and nothing reads it afterwards.

use object::build::Result;
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;

/// The beginnings of the names of the sections that are removed.
const DEBUG: [&[u8]; 2] = [b".debug_", b".rel.debug_"];
/// The largest alignment of a section, in bytes, for which there is room in the new file.
const LARGEST_ALIGNMENT: u64 = 4096;

/// Returns the object without debug information; `None` if a source has asked for an alignment that
/// takes too much room. BTF stays, which has the lines for the verifier's log.
pub fn without_debug_information(elf: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut builder = Builder::read(elf)?;
    for section in &mut builder.sections {
        section.delete = DEBUG
            .iter()
            .any(|beginning| section.name.starts_with(beginning));
    }
    builder.delete_orphans();
    if builder
        .sections
        .iter()
        .any(|section| section.sh_addralign > LARGEST_ALIGNMENT)
    {
        return Ok(None);
    }
    // Clang keeps the names of sections among those of symbols. The builder needs a separate
    // section for the names of sections.
    let names = builder.sections.add();
    names.name = b".shstrtab"[..].into();
    names.sh_type = SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(Some(stripped))
}
