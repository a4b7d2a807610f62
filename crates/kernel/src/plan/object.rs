//! A parsed object: the entry point, maps and types of a source.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use aya_obj::btf::{BtfError, BtfFeatures};
use aya_obj::{Function, Object};
use twinprobe_ebpf_common::Btf;
use twinprobe_ebpf_common::finding::{Finding, SOURCE_NAME, Stage, name_beside, with_causes};
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_ebpf_common::unit::Calls;

use crate::plan::elf;
use crate::plan::elf::error::ElfError;
use crate::plan::elf::maps::MapPointer;
use crate::plan::elf::programs::{ProgramChoice, Unfit};
use crate::plan::elf::references::Misplaced;
use crate::plan::elf::tables::CallError;
use crate::plan::map_spec::{self, MapSpec, PROGRAMS};
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

/// A position in the source, in a file that a client has sent with the source, or in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePosition {
    place: CodeFile,
    line: u32,
    column: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CodeFile {
    Source,
    /// A file that a client has sent with the source.
    Beside(String),
    /// A file of this name that the daemon does not have: the source says by `#line` that it was
    /// made from the file, or the object was compiled elsewhere.
    Elsewhere(String),
}

impl CodePosition {
    /// Returns the position that an instruction of `function` was compiled from.
    fn of(btf: &[u8], function: &Function, instruction: usize) -> Option<Self> {
        let (file, line, column) = position(btf, function, instruction, |_| true)?;
        let (place, line, column) = match (
            name_beside(file),
            source_position(btf, function, instruction),
        ) {
            (Some(name), _) => (CodeFile::Beside(name), line, column),
            (None, Some((line, column))) => (CodeFile::Source, line, column),
            // A relative name is one in the directory of the compilation, which is `/`.
            (None, None) => (
                CodeFile::Elsewhere(file.strip_prefix("//").unwrap_or(file).to_owned()),
                line,
                column,
            ),
        };
        Some(Self {
            place,
            line,
            column,
        })
    }

    /// Adds this position to a finding about the source in the field `field` of the configuration.
    fn place(&self, field: &str, finding: Finding) -> Finding {
        let file = match &self.place {
            CodeFile::Source => None,
            CodeFile::Beside(name) => field
                .strip_suffix("source")
                .map(|direction| format!("{direction}files.{name}")),
            CodeFile::Elsewhere(file) => {
                let message = format!("in {file}:{}: {}", self.line, finding.message);
                return Finding { message, ..finding };
            }
        };
        let finding = Finding {
            field: file.or(finding.field),
            ..finding
        };
        finding.at(self.line, Some(self.column))
    }
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
        let prepared = elf::prepare(elf, hook, entry, facts.options)?;
        let elf::Prepared {
            elf,
            choice,
            others,
            pointers,
            unused,
            mut calls,
            undefined,
            misplaced,
            sees,
            declared,
            mut warnings,
        } = prepared;
        let mut program =
            guarded(|| Object::parse(&elf))?.map_err(|error| unparsed(error, &declared))?;
        let functions = program.functions.len();
        if functions > MAX_FUNCTIONS {
            return Err(ObjectError::ManyFunctions(functions));
        }
        let position = |at: &Option<(String, usize)>| {
            let (function, instruction) = at.as_ref()?;
            let function = program
                .functions
                .values()
                .find(|known| known.name == *function)?;
            CodePosition::of(&program.btf.as_ref()?.to_bytes(), function, *instruction)
        };
        if let Some(Misplaced {
            section,
            offset,
            at,
        }) = misplaced.into_iter().next()
        {
            return Err(ObjectError::Misplaced {
                section,
                offset,
                position: position(&at),
            });
        }
        if let Some(first) = undefined.first() {
            let position = position(&first.used_at);
            let names: Vec<&str> = undefined
                .iter()
                .map(|undefined| undefined.symbol.as_str())
                .collect();
            return Err(ObjectError::Undefined {
                names: names.join(", "),
                position,
            });
        }
        let ProgramChoice {
            entry,
            frags,
            unfit,
            ..
        } = choice;
        if let Some(reason) = unfit {
            let position = position(&Some((entry, 0)));
            return Err(ObjectError::Unfit { reason, position });
        }
        if frags && !facts.xdp_frags {
            return Err(ObjectError::NoFrags(entry));
        }
        let no_features = BtfFeatures::default();
        guarded(|| {
            program
                .fixup_and_sanitize_btf(facts.btf.unwrap_or(&no_features))
                .map(drop)
        })??;
        let btf_blob = program.btf.as_ref().ok_or(ElfError::DamagedBtf)?.to_bytes();
        let btf = Btf::parse(&btf_blob)?;
        let mut maps = map_spec::map_specs(&program, &btf, facts, &mut warnings)?;
        empty_tables(&maps, &unused, &mut calls, &mut warnings);
        maps.retain(|name, _| !calls.contains_key(name));
        let slots = pointers
            .into_iter()
            .filter_map(|pointer| slot(pointer, &maps, &btf))
            .collect();
        let defined = Definitions {
            entry,
            frags,
            others,
            maps,
            unused,
            slots,
            calls,
            btf,
            warnings,
            sees,
        };
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

/// Returns line and column of the user's source that an instruction was compiled from: those of the
/// last record up to the instruction that is not from a header.
fn source_position(btf: &[u8], function: &Function, instruction: usize) -> Option<(u32, u32)> {
    let is_source = |file: &str| file.rsplit('/').next() == Some(SOURCE_NAME);
    position(btf, function, instruction, is_source).map(|(_, line, column)| (line, column))
}

/// Returns the file, the line and the column of an instruction: those of the last record up to it
/// whose file is wanted.
fn position<'a>(
    btf: &'a [u8],
    function: &Function,
    instruction: usize,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<(&'a str, u32, u32)> {
    let records = &function.line_info.line_info;
    // Before linking, the records of a function count from the start of its section.
    let start = records.first()?.insn_off;
    records
        .iter()
        // Code that belongs to several lines has line 0.
        .filter(|record| record.line_col >> 10 != 0)
        // A damaged object may have records from before the function.
        .filter(|record| {
            record
                .insn_off
                .checked_sub(start)
                .is_some_and(|at| at as usize <= instruction)
        })
        .filter_map(|record| Some((record, file_name(btf, record.file_name_off)?)))
        .filter(|(_, file)| is_wanted(file))
        .max_by_key(|(record, _)| record.insn_off)
        .map(|(record, file)| (file, record.line_col >> 10, record.line_col & 0x3ff))
}

/// Returns the name of the file at `offset` in the strings of `btf`, as line information refers to
/// files.
fn file_name(btf: &[u8], offset: u32) -> Option<&str> {
    let word = |at: usize| {
        let bytes = btf.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let start = word(4)?
        .checked_add(word(16)?)?
        .checked_add(offset as usize)?;
    CStr::from_bytes_until_nul(btf.get(start..)?)
        .ok()?
        .to_str()
        .ok()
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
