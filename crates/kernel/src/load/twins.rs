//! Twins from one object: one compilation, two loads. The twins differ only in the maps bound to them: maps
//! of snapshot metrics are private to each, everything else is shared (Algorithm 1 of the paper, lines
//! 12-21, without its second compilation).

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use aya_obj::Function;
use twinprobe_ebpf_common::finding::{Finding, Rejection, SOURCE_NAME, Stage, with_causes};

use crate::capabilities::Capabilities;
use crate::load::carry::predecessor::Predecessor;
use crate::load::maps::{ProbeMaps, TwinMap};
use crate::load::verifier;
use crate::plan::build::{self, MetricRequest};
use crate::plan::object::{ObjectError, ProbeObject};
use crate::sys::call::KernelError;
use crate::sys::prog::{self, InfoRecords, ProgLoad};
use crate::trial::programs;
use twinprobe_ebpf_common::hook::ProgramKind;

/// Characters of a source line that a finding quotes.
const MAX_QUOTE: usize = 120;

/// A direction's program as it is in the kernel, attached to nothing.
#[derive(Debug)]
pub struct LoadedTwins {
    pub entry: String,
    pub programs: Programs,
    /// What the metrics read, in the order of the requests.
    pub maps: Vec<TwinMap>,
    /// All maps of the program.
    pub own: Arc<ProbeMaps>,
    pub warnings: Vec<String>,
}

#[derive(Debug)]
pub enum Programs {
    /// No metric wants a snapshot: there is nothing to swap.
    Single(OwnedFd),
    Twins([OwnedFd; 2]),
}

impl Programs {
    /// The program that runs while the epoch has this parity.
    pub fn of_parity(&self, parity: usize) -> BorrowedFd<'_> {
        match self {
            Self::Single(program) => program.as_fd(),
            Self::Twins(programs) => programs[parity & 1].as_fd(),
        }
    }

    /// Returns the ids of the programs for even and odd epochs.
    pub fn ids(&self) -> std::io::Result<[u32; 2]> {
        let id = |parity| Ok::<_, std::io::Error>(prog::prog_identity(self.of_parity(parity))?.id);
        Ok([id(0)?, id(1)?])
    }

    pub const fn are_twins(&self) -> bool {
        matches!(self, Self::Twins(_))
    }

    /// The programs there are.
    pub fn each(&self) -> &[OwnedFd] {
        match self {
            Self::Single(program) => std::slice::from_ref(program),
            Self::Twins(programs) => programs,
        }
    }
}

/// Loads the twins of `elf` as `requests` want them, with what they take over from `old`. `field` is the
/// configuration's path of the direction.
pub fn load(
    elf: &[u8],
    kind: ProgramKind,
    field: &str,
    requests: &[MetricRequest],
    capabilities: &Capabilities,
    old: Option<&Predecessor>,
) -> Result<LoadedTwins, Rejection> {
    let source = format!("{field}.source");
    let object = parse(elf, kind).map_err(|error| Finding::new(Stage::Load, &source, with_causes(&error)))?;
    let mut warnings = object.warnings().to_vec();
    let contents = build::check(&object, requests, capabilities.kernel.possible_cpus, &mut warnings)?;

    let refuse = |error: KernelError| Rejection::from(map_finding(&source, &error));
    let btf = prog::btf_load(object.btf_blob())
        .map_err(|error| warnings.push(format!("the kernel takes no type information: {error}")))
        .ok();
    let own = ProbeMaps::create(&object, btf.as_ref().map(AsFd::as_fd), requests, old).map_err(refuse)?;
    let program = |twin| load_program(&object, kind, &btf, &source, &own.of_twin(twin));
    let programs = match own.are_twins() {
        false => Programs::Single(program(0)?),
        true => Programs::Twins([program(0)?, program(1)?]),
    };
    let maps = own.readers(requests, contents, capabilities).map_err(refuse)?;
    Ok(LoadedTwins { entry: object.entry().to_owned(), programs, maps, own: Arc::new(own), warnings })
}

/// The twins that an earlier daemon has loaded from `elf`: `open` gives its maps by name and twin, and
/// `programs` are its programs. The error says what does not fit.
pub fn adopt(
    elf: &[u8],
    kind: ProgramKind,
    requests: &[MetricRequest],
    capabilities: &Capabilities,
    mut programs: Vec<OwnedFd>,
    open: impl FnMut(&str, usize) -> Result<OwnedFd, String>,
) -> Result<LoadedTwins, String> {
    let object = parse(elf, kind).map_err(|error| with_causes(&error))?;
    let mut warnings = object.warnings().to_vec();
    let contents = build::check(&object, requests, capabilities.kernel.possible_cpus, &mut warnings)
        .map_err(|_| "the object does not have the maps that the metrics name".to_owned())?;
    let own = ProbeMaps::adopt(&object, requests, open)?;
    let programs = match (own.are_twins(), programs.pop(), programs.pop()) {
        (false, Some(program), None) => Programs::Single(program),
        (true, Some(second), Some(first)) => Programs::Twins([first, second]),
        _ => return Err("the number of programs does not fit".into()),
    };
    let maps = own.readers(requests, contents, capabilities).map_err(|error| with_causes(&error))?;
    Ok(LoadedTwins { entry: object.entry().to_owned(), programs, maps, own: Arc::new(own), warnings })
}

fn parse(elf: &[u8], kind: ProgramKind) -> Result<ProbeObject, ObjectError> {
    let no_features = aya_obj::btf::BtfFeatures::default();
    ProbeObject::parse(elf, kind, aya::features().btf().unwrap_or(&no_features))
}

fn map_finding(source: &str, error: &KernelError) -> Finding {
    let hint = match error.errno() {
        libc::EINVAL => {
            "; its type, sizes, flags or max_entries do not go together (LPM_TRIE needs the flag BPF_F_NO_PREALLOC), \
             or this kernel has no maps of its type"
        }
        libc::E2BIG | libc::ENOMEM => "; it is larger than the kernel allows, lower max_entries or the sizes",
        libc::EPERM => {
            "; the daemon needs CAP_BPF, and CAP_SYS_RESOURCE where maps count as locked memory (before Linux 5.11)"
        }
        _ => "",
    };
    Finding::new(Stage::Load, source, format!("{}{hint}", with_causes(error)))
}

/// Binds the maps and loads.
fn load_program(
    object: &ProbeObject,
    kind: ProgramKind,
    btf: &Option<OwnedFd>,
    source: &str,
    maps: &HashMap<&str, RawFd>,
) -> Result<OwnedFd, Rejection> {
    let function = object
        .bind(maps)
        .map_err(|error: ObjectError| Finding::new(Stage::Load, source, with_causes(&error)))?;
    let (func_info, line_info) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
    let program = ProgLoad {
        name: object.entry(),
        prog_type: kind.prog_type(),
        expected_attach_type: kind.expected_attach_type(),
        flags: programs::load_flags(kind),
        license: object.license(),
        instructions: &function.instructions,
        btf: btf.as_ref().map(AsFd::as_fd),
        func_info: InfoRecords {
            bytes: &func_info,
            record_size: function.func_info_rec_size as u32,
            count: function.func_info.len() as u32,
        },
        line_info: InfoRecords {
            bytes: &line_info,
            record_size: function.line_info_rec_size as u32,
            count: function.line_info.len() as u32,
        },
    };
    verifier::load(&program).map_err(|refusal| refused(object, &function, source, refusal))
}

fn refused(object: &ProbeObject, function: &Function, source: &str, refusal: verifier::Refusal) -> Rejection {
    let mut finding = Finding::new(Stage::Load, source, refusal.message);
    if let Some((line, column)) =
        refusal.instruction.and_then(|instruction| source_position(object, function, instruction))
    {
        finding = finding.at(line, Some(column));
    }
    if let Some(quoted) = refusal.quoted {
        let quoted: String = quoted.chars().take(MAX_QUOTE).collect();
        finding.message = format!("{} (at `{quoted}`)", finding.message);
    }
    Rejection::from(finding).with_log(refusal.log)
}

/// The user's line that `instruction` was compiled from: that of the last record before it which is not
/// from a header.
fn source_position(object: &ProbeObject, function: &Function, instruction: u32) -> Option<(u32, u32)> {
    function
        .line_info
        .line_info
        .iter()
        .filter(|record| record.insn_off <= instruction)
        .filter(|record| {
            let file = object.file_name(record.file_name_off);
            file.is_some_and(|file| file.ends_with(SOURCE_NAME))
        })
        .max_by_key(|record| record.insn_off)
        .map(|record| (record.line_col >> 10, record.line_col & 0x3ff))
}
