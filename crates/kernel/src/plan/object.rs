//! A parsed object: the entry point, maps and types of a source.

mod position;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use aya_obj::btf::{BtfError, BtfFeatures};
use aya_obj::{Function, Object};
use twinprobe_ebpf_common::Btf;
use twinprobe_ebpf_common::finding::{Finding, Stage, with_causes};
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_ebpf_common::unit::Calls;

use crate::plan::elf::error::ElfError;
use crate::plan::elf::maps::MapPointer;
use crate::plan::elf::programs::Unfit;
use crate::plan::elf::tables::CallError;
use crate::plan::elf::{self, Prepared};
use crate::plan::map_spec::{self, MapSpec, PROGRAMS};
use crate::plan::object::position::{CodePosition, position, source_position};
use crate::plan::request::KernelFacts;
use crate::plan::sees::Sees;

/// The most functions of an object. The kernel takes 256 of one program; the linker nests the
/// functions of an object, which takes stack for each.
const MAX_FUNCTIONS: usize = 1024;

/// The size of a pointer in an object, in bytes.
const POINTER: u64 = 8;

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("the object can't be parsed")]
    Parse(#[from] aya_obj::ParseError),
    #[error(
        "struct {0} is only declared where its size is needed, as the key or value of maps in a map; declare a variable or another \
         map of this type as well, then clang describes it"
    )]
    Declared(String),
    #[error("the object's type information can't be used")]
    Btf(#[from] BtfError),
    #[error("the object's type information can't be read")]
    OwnBtf(#[from] twinprobe_ebpf_common::BtfError),
    #[error("the source's CO-RE relocations do not fit this kernel")]
    Core(#[from] aya_obj::btf::BtfRelocationError),
    #[error("a reference in the object has no target")]
    Relocation(#[from] aya_obj::relocation::EbpfRelocationError),
    #[error(
        "the source uses {names} without defining it; neither other files nor kernel functions (kfuncs) are linked in, but for bpf_dynptr_from_skb, bpf_dynptr_from_xdp and bpf_dynptr_slice"
    )]
    Undefined {
        names: String,
        position: Option<CodePosition>,
    },
    #[error(
        "the relocation at byte {offset} of section {section} belongs to an instruction that neither loads \
         an address nor calls a function; leave it out, and let the compiler make the references"
    )]
    Misplaced {
        section: String,
        offset: u64,
        position: Option<CodePosition>,
    },
    #[error(
        "the source has {0} functions; the limit is {MAX_FUNCTIONS}, and the kernel takes 256 of one program"
    )]
    ManyFunctions(usize),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the program is too long for the loops over numbers in it; make it smaller")]
    LongLoops,
    #[error("the object is damaged in a way that its parser does not survive")]
    Panic,
    #[error(
        "{0} is in SEC(\"xdp.frags\"), and this kernel has no XDP programs for packets of several buffers (Linux 5.18 has them); \
         write SEC(\"xdp\") (with twinprobe.h: define TWINPROBE_SINGLE_BUFFER, or twinprobe build --single-buffer)"
    )]
    NoFrags(String),
    #[error(
        "this kernel has no function {0} (Linux 6.4 has it): read the packet in another way, or declare it __weak and ask for it"
    )]
    NoFunction(&'static str),
    #[error("{reason}")]
    Unfit {
        reason: Unfit,
        position: Option<CodePosition>,
    },
}

impl ObjectError {
    /// Makes the finding about the source in this field of the configuration.
    pub fn finding(&self, field: &str) -> Finding {
        match self {
            Self::Undefined { position, .. } | Self::Misplaced { position, .. } => {
                let finding = Finding::new(Stage::Admission, field, with_causes(self));
                position
                    .as_ref()
                    .map_or(finding.clone(), |position| position.place(field, finding))
            }
            Self::Unfit {
                reason: Unfit::Unknown { .. },
                ..
            }
            | Self::Elf(ElfError::Unfit(Unfit::Unknown { .. })) => {
                let direction = field.split('.').next().unwrap_or_default();
                Finding::new(Stage::Load, format!("{direction}.entry"), with_causes(self))
            }
            Self::Unfit {
                position: Some(position),
                ..
            } => {
                let finding =
                    position.place(field, Finding::new(Stage::Load, field, with_causes(self)));
                Finding {
                    column: None,
                    ..finding
                }
            }
            _ => Finding::new(Stage::Load, field, with_causes(self)),
        }
    }
}

/// The definitions of a source: its entry point, maps and types.
#[derive(Debug)]
pub struct Definitions {
    /// The function that is called for each packet.
    pub entry: String,
    /// True if the entry point is an XDP program for packets of several buffers, by its section.
    pub frags: bool,
    /// The names of the object's other programs, which nothing runs.
    pub others: Vec<String>,
    pub maps: BTreeMap<String, MapSpec>,
    /// The maps that neither the program nor another map leads to.
    pub unused: BTreeSet<String>,
    /// The initial content of maps of maps: outer map, slot, inner map.
    pub slots: Vec<(String, u32, String)>,
    /// The programs in the slots of tables for `bpf_tail_call`, which do not count as maps here.
    pub calls: Calls,
    pub btf: Btf,
    pub warnings: Vec<String>,
    pub sees: Sees,
}

impl Definitions {
    /// Returns the definitions of a prepared object, which was parsed as `program` with the type
    /// information `btf_blob`.
    fn of(
        prepared: Prepared,
        program: &Object,
        btf_blob: &[u8],
        facts: KernelFacts,
    ) -> Result<Self, ObjectError> {
        let Prepared {
            choice,
            others,
            pointers,
            unused,
            mut calls,
            sees,
            mut warnings,
            ..
        } = prepared;
        let btf = Btf::parse(btf_blob)?;
        let mut maps = map_spec::map_specs(program, &btf, facts, &mut warnings)?;
        empty_tables(&maps, &unused, &mut calls, &mut warnings);
        maps.retain(|name, _| !calls.contains_key(name));
        let slots = pointers
            .into_iter()
            .filter_map(|pointer| slot(pointer, &maps, &btf))
            .collect();
        Ok(Self {
            entry: choice.entry,
            frags: choice.frags,
            others,
            maps,
            unused,
            slots,
            calls,
            btf,
            warnings,
            sees,
        })
    }
}

/// A parsed object, ready to be bound to maps and loaded any number of times.
#[derive(Debug)]
pub struct ProbeObject {
    /// The program, whose references to the kernel's types are not resolved yet.
    pub program: Object,
    pub btf_blob: Vec<u8>,
    pub defined: Definitions,
}

impl ProbeObject {
    /// Parses `elf`, whose program for this hook has the name `entry` unless the object decides.
    pub fn parse(
        elf: &[u8],
        hook: Hook,
        entry: Option<&str>,
        facts: KernelFacts,
    ) -> Result<Self, ObjectError> {
        let mut prepared = elf::prepare(elf, hook, entry, facts.options)?;
        let mut program = guarded(|| Object::parse(&prepared.elf))?
            .map_err(|error| unparsed(error, &prepared.declared))?;
        let functions = program.functions.len();
        if functions > MAX_FUNCTIONS {
            return Err(ObjectError::ManyFunctions(functions));
        }
        refuse_references(&program, &prepared)?;
        let choice = &mut prepared.choice;
        if let Some(reason) = choice.unfit.take() {
            let position = position_in(&program, &choice.entry, 0);
            return Err(ObjectError::Unfit { reason, position });
        }
        if choice.frags && !facts.xdp_frags {
            return Err(ObjectError::NoFrags(choice.entry.clone()));
        }
        let no_features = BtfFeatures::default();
        guarded(|| {
            program
                .fixup_and_sanitize_btf(facts.btf.unwrap_or(&no_features))
                .map(drop)
        })??;
        let btf_blob = program.btf.as_ref().ok_or(ElfError::DamagedBtf)?.to_bytes();
        let defined = Definitions::of(prepared, &program, &btf_blob, facts)?;
        Ok(Self {
            program,
            btf_blob,
            defined,
        })
    }

    /// Returns line and column of the user's source that an instruction of `function` was compiled
    /// from.
    pub fn source_position(&self, function: &Function, instruction: usize) -> Option<(u32, u32)> {
        source_position(&self.btf_blob, function, instruction)
    }

    /// Makes a finding about an instruction of `function`, whose source is in this field: in the
    /// file that it was compiled from, if a client has sent that along, else in the source.
    pub fn finding(
        &self,
        stage: Stage,
        field: &str,
        function: &Function,
        instruction: usize,
        message: &str,
    ) -> Finding {
        let finding = Finding::new(stage, field, message);
        match CodePosition::of(&self.btf_blob, function, instruction) {
            Some(position) => position.place(field, finding),
            None => finding,
        }
    }

    /// Returns the file and the line that an instruction of `function` was compiled from. It may be
    /// any file.
    pub fn position(&self, function: &Function, instruction: usize) -> Option<(&str, u32)> {
        let (file, line, _) = position(&self.btf_blob, function, instruction, |_| true)?;
        // A relative name is one in the directory of the compilation, which is `/`.
        Some((file.strip_prefix("//").unwrap_or(file), line))
    }
}

/// Refuses references that no instruction can have, and references without a target.
fn refuse_references(program: &Object, prepared: &Prepared) -> Result<(), ObjectError> {
    let position = |at: &Option<(String, usize)>| {
        let (function, instruction) = at.as_ref()?;
        position_in(program, function, *instruction)
    };
    if let Some(first) = prepared.misplaced.first() {
        return Err(ObjectError::Misplaced {
            section: first.section.clone(),
            offset: first.offset,
            position: position(&first.at),
        });
    }
    if let Some(first) = prepared.undefined.first() {
        let names: Vec<&str> = prepared
            .undefined
            .iter()
            .map(|undefined| undefined.symbol.as_str())
            .collect();
        return Err(ObjectError::Undefined {
            names: names.join(", "),
            position: position(&first.used_at),
        });
    }
    Ok(())
}

/// Returns the position of an instruction in the function with this name.
fn position_in(program: &Object, function: &str, instruction: usize) -> Option<CodePosition> {
    let function = program
        .functions
        .values()
        .find(|known| known.name == function)?;
    CodePosition::of(&program.btf.as_ref()?.to_bytes(), function, instruction)
}

/// Adds the tables of programs that the source does not fill. Nothing else fills them.
fn empty_tables(
    maps: &BTreeMap<String, MapSpec>,
    unused: &BTreeSet<String>,
    calls: &mut Calls,
    warnings: &mut Vec<String>,
) {
    let tables = maps
        .iter()
        .filter(|(_, spec)| spec.map_type == PROGRAMS)
        .map(|(name, _)| name);
    for name in tables {
        if !unused.contains(name) && !calls.contains_key(name) {
            warnings.push(format!(
                "no slot of the table {name} has a program, so bpf_tail_call through it does nothing; a source names programs by \
                 .values = {{ [0] = (void *)&program }}"
            ));
        }
        calls.entry(name.clone()).or_default();
    }
}

/// Returns the reason why aya-obj does not parse an object: for a type without a size, its name.
fn unparsed(error: aya_obj::ParseError, declared: &HashMap<u32, String>) -> ObjectError {
    let name = match &error {
        aya_obj::ParseError::BtfError(BtfError::UnexpectedBtfType { type_id }) => {
            declared.get(type_id)
        }
        _ => None,
    };
    name.map_or(error.into(), |name| ObjectError::Declared(name.clone()))
}

/// Returns the outer map, the slot and the inner map of a pointer such as `.values = { [3] = &map
/// }`; `None` if the outer map is not a map of maps.
fn slot(
    pointer: MapPointer,
    maps: &BTreeMap<String, MapSpec>,
    btf: &Btf,
) -> Option<(String, u32, String)> {
    let MapPointer {
        outer,
        offset,
        inner,
    } = pointer;
    maps.get(&outer)?.inner.as_ref()?;
    let values = btf.inner_map_definition(&outer)?.values_offset as u64;
    let slot = u32::try_from(offset.checked_sub(values)? / POINTER).ok()?;
    Some((outer, slot, inner))
}

/// Calls `parse` and turns a panic into an error: aya-obj can panic on an unexpected object, and a
/// source decides what its object contains, because inline assembly can emit any section.
pub fn guarded<T>(parse: impl FnOnce() -> T) -> Result<T, ObjectError> {
    catch_unwind(AssertUnwindSafe(parse)).map_err(|_| ObjectError::Panic)
}
