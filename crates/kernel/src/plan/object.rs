//! A parsed object: the entry point, maps and types of a source.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use aya_obj::btf::BtfFeatures;
use aya_obj::{Object, ProgramSection};
use twinprobe_ebpf_common::btf::Btf;

use crate::plan::elf;
use crate::plan::inner_maps::{self, Slots};
use crate::plan::map_spec::{self, MapSpec};
use crate::plan::request::KernelFacts;
use twinprobe_ebpf_common::hook::ProgramKind;

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Elf(#[from] elf::ElfError),
    #[error("the object can't be parsed")]
    Parse(#[from] aya_obj::ParseError),
    #[error("the object's references between maps can't be read")]
    InnerMaps(#[from] object::read::Error),
    #[error("the object's type information can't be used")]
    Btf(#[from] aya_obj::btf::BtfError),
    #[error("the object's type information can't be read")]
    OwnBtf(#[from] twinprobe_ebpf_common::btf::BtfError),
    #[error("the source's CO-RE relocations do not fit this kernel")]
    Core(#[from] aya_obj::btf::BtfRelocationError),
    #[error("a reference in the object leads nowhere")]
    Relocation(#[from] aya_obj::relocation::EbpfRelocationError),
    #[error("the object is damaged in a way that its parser does not survive")]
    Panic,
    #[error("no entry point: the source needs one program in SEC(\"{section}\"){others}")]
    NoEntry { section: &'static str, others: String },
    #[error(
        "{} entry points: {}; the source needs exactly one program in SEC(\"{section}\") per direction",
        names.len(),
        names.join(", ")
    )]
    ManyEntries { section: &'static str, names: Vec<String> },
}

/// What a source defines.
#[derive(Debug)]
pub struct Definitions {
    /// The function that is called for each packet.
    pub entry: String,
    pub maps: BTreeMap<String, MapSpec>,
    /// Of maps of maps: the maps that are in them from the start.
    pub slots: Slots,
    pub btf: Btf,
    pub warnings: Vec<String>,
}

/// A parsed object, ready to be bound to maps and loaded any number of times.
#[derive(Debug)]
pub struct ProbeObject {
    /// References to the kernel's types are not resolved yet.
    pub program: Object,
    pub btf_blob: Vec<u8>,
    pub defined: Definitions,
}

impl ProbeObject {
    /// Parses `elf`, which has one entry point of this kind.
    pub fn parse(elf: &[u8], kind: ProgramKind, facts: KernelFacts) -> Result<Self, ObjectError> {
        let elf = elf::prepare(elf)?;
        let mut program = guarded(|| Object::parse(&elf))??;
        let entry = entry_point(&program, kind)?;
        let no_features = BtfFeatures::default();
        guarded(|| program.fixup_and_sanitize_btf(facts.btf.unwrap_or(&no_features)).map(drop))??;
        let btf_blob = program.btf.as_ref().ok_or(elf::ElfError::NoBtf)?.to_bytes();
        let btf = Btf::parse(&btf_blob)?;
        let mut warnings = Vec::new();
        let maps = map_spec::map_specs(&program, &btf, facts, &mut warnings)?;
        let mut slots = inner_maps::slots(&elf, &btf)?;
        slots.retain(|outer, _| maps.get(outer).is_some_and(|spec| spec.inner.is_some()));
        Ok(Self { program, btf_blob, defined: Definitions { entry, maps, slots, btf, warnings } })
    }

    /// The file that BTF line information names at `offset` of its strings.
    pub fn file_name(&self, offset: u32) -> Option<&str> {
        let word = |at: usize| {
            let bytes = self.btf_blob.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let start = word(4)?.checked_add(word(16)?)?.checked_add(offset as usize)?;
        CStr::from_bytes_until_nul(self.btf_blob.get(start..)?).ok()?.to_str().ok()
    }
}

/// aya-obj can panic on an object it does not expect, and what clang writes is in the hands of the source
/// (inline assembly can emit any section).
pub fn guarded<T>(parse: impl FnOnce() -> T) -> Result<T, ObjectError> {
    catch_unwind(AssertUnwindSafe(parse)).map_err(|_| ObjectError::Panic)
}

fn entry_point(object: &Object, kind: ProgramKind) -> Result<String, ObjectError> {
    let section = kind.section();
    let fits = |program: &aya_obj::Program| match program.section {
        ProgramSection::Xdp { attach_type: aya_obj::programs::XdpAttachType::Interface, .. } => {
            kind == ProgramKind::Xdp
        }
        ProgramSection::SchedClassifier => kind == ProgramKind::Tc,
        _ => false,
    };
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for (name, program) in &object.programs {
        if fits(program) { names.push(name.clone()) } else { others.push(name.clone()) }
    }
    names.sort();
    others.sort();
    match names.len() {
        1 => Ok(names.remove(0)),
        0 if others.is_empty() => Err(ObjectError::NoEntry { section, others: String::new() }),
        0 => {
            let others = format!("; {} belongs to another hook", others.join(", "));
            Err(ObjectError::NoEntry { section, others })
        }
        _ => Err(ObjectError::ManyEntries { section, names }),
    }
}
