//! `ingress` and `egress`: the fields of a direction, and their rules.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use twinprobe_api::DirectionDocument;
use twinprobe_ebpf_common::hook::{Direction, Hook, Position, Verdict, XdpMode};
use twinprobe_ebpf_common::request::AttachRequest;
use twinprobe_ebpf_common::unit::{Calls, Dialect};

use crate::metric::{self, MetricConfig};
use crate::validate::findings::{Defaults, Findings};
use crate::validate::{files, names};

/// The limit of a source, and of an object in base64, in bytes.
const SOURCE_LIMIT: usize = 1 << 20;
const DEFINES_LIMIT: usize = 256;
/// The limit of a table's slots with functions: the kernel takes 256 functions of one program.
const CALLS_LIMIT: usize = 250;
/// The limit in bytes of a define's name, and of its value.
const DEFINE_LIMIT: usize = 4 << 10;
/// The highest limit of a program's cost: a second.
const MAX_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionConfig {
    /// The hook of the program, and its position there. Only TC has positions.
    pub attach: AttachRequest,
    pub code: Code,
    /// The function for packets; `None` if the source or object has only one function, or only one
    /// that fits the hook.
    pub entry: Option<String>,
    /// The initial values of variables, in the form of documents.
    pub variables: BTreeMap<String, Value>,
    /// The numbers of entries of maps, which replace the numbers in their definitions.
    pub max_entries: BTreeMap<String, u32>,
    /// The most nanoseconds that the program may take for a packet in a trial; `None` for no limit.
    pub max_ns_per_packet: Option<u64>,
    /// The metrics, no two with the same name. Metrics of one map agree on `snapshot` and `init`.
    pub metrics: Vec<MetricConfig>,
}

/// A source in eBPF C, and the options of its compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCode {
    pub text: String,
    /// The files that the source may include, by their paths below its folder.
    pub files: BTreeMap<String, String>,
    pub dialect: Dialect,
    /// The functions in the tables of programs, in a source for BCC.
    pub calls: Calls,
    pub defines: BTreeMap<String, String>,
}

/// The program of a direction, as the client has sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    Source(SourceCode),
    /// An ELF object that was compiled elsewhere.
    Object(Vec<u8>),
}

impl Code {
    /// The name of the field in the direction.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Object(_) => "object",
        }
    }
}

/// Checks a direction and adds its mistakes to `findings`. Invalid fields have a placeholder in the
/// result.
pub fn check(
    direction: Direction,
    document: &DirectionDocument,
    defaults: &Defaults,
    findings: &mut Findings,
) -> DirectionConfig {
    let at = direction.name();
    let (hook, xdp_mode) = hook(direction, document, findings);
    let verdict = document.verdict.as_deref();
    let verdict = findings.choose(
        &format!("{at}.verdict"),
        "verdict",
        verdict,
        &Verdict::NAMES,
    );
    let verdict = verdict.unwrap_or(Verdict::Observe);
    let priority = findings.priority(&format!("{at}.priority"), document.priority);
    let priority = priority.unwrap_or(defaults.priority);
    let position = position(at, hook, document, defaults, findings);
    let code = code(at, document, findings);
    let sample = document.sample.and_then(|one_in| {
        let sample = u32::try_from(one_in).ok().and_then(NonZeroU32::new);
        if sample.is_none() {
            let message = format!(
                "one packet in {one_in} can't be chosen; use 1 to {}",
                u32::MAX
            );
            findings.add(format!("{at}.sample"), message);
        }
        sample
    });
    let max_ns_per_packet = document.max_ns_per_packet;
    if let Some(limit) = max_ns_per_packet.filter(|limit| !(1..=MAX_NS).contains(limit)) {
        findings.add(
            format!("{at}.max_ns_per_packet"),
            format!("{limit} is not a limit; use 1 to {MAX_NS}"),
        );
    }
    let metrics = metric::check_all(
        at,
        document.metrics.as_deref().unwrap_or_default(),
        defaults,
        findings,
    );
    let attach = AttachRequest {
        hook,
        xdp_mode,
        verdict,
        sample,
        priority,
        position,
    };
    let entry = document.entry.clone();
    let variables = variables(at, document, findings);
    let max_entries = max_entries(at, document, findings);
    DirectionConfig {
        attach,
        code,
        entry,
        variables,
        max_entries,
        max_ns_per_packet,
        metrics,
    }
}

fn hook(
    direction: Direction,
    document: &DirectionDocument,
    findings: &mut Findings,
) -> (Hook, XdpMode) {
    let at = direction.name();
    let field = format!("{at}.mode");
    let mode = findings.choose(&field, "mode", document.mode.as_deref(), &XdpMode::NAMES);
    let choices = Hook::choices(direction);
    let name = document.hook.as_deref().unwrap_or(choices[0].0);
    let hook = match choices.iter().find(|(word, _)| *word == name) {
        Some((_, hook)) => *hook,
        None => {
            let known = choices
                .iter()
                .map(|(word, _)| *word)
                .collect::<Vec<_>>()
                .join(" or ");
            let message = match (is_hook(name), direction) {
                (true, Direction::Ingress) => {
                    format!("{name} sees outgoing packets only; use {known}")
                }
                (true, Direction::Egress) => {
                    format!("{name} sees incoming packets only; use {known}")
                }
                (false, _) => format!("unknown hook {}; use {known}", names::quote(name)),
            };
            findings.add(format!("{at}.hook"), message);
            if !is_hook(name) {
                return (Hook::Xdp, XdpMode::Auto);
            }
            choices[0].1
        }
    };
    if document.mode.is_some() && !hook.has_modes() {
        findings.add(field, "mode belongs to the hook xdp; leave it out with tc");
    }
    (hook, mode.unwrap_or(XdpMode::Auto))
}

/// Tells whether a direction has a hook of this name.
fn is_hook(name: &str) -> bool {
    Direction::ALL
        .into_iter()
        .flat_map(Hook::choices)
        .any(|(word, _)| *word == name)
}

fn position(
    at: &str,
    hook: Hook,
    document: &DirectionDocument,
    defaults: &Defaults,
    findings: &mut Findings,
) -> Position {
    let field = format!("{at}.position");
    // An unknown hook is replaced by xdp, which has no positions. The hook that was meant may have
    // positions.
    let is_known = document.hook.as_deref().is_none_or(is_hook);
    if document.position.is_some() && is_known && !hook.has_positions() {
        let message = "position orders programs at the hook tc, but xdp has only one program: leave it out, or use tc";
        findings.add(field, message);
        return defaults.position;
    }
    findings
        .position(&field, document.position.as_deref())
        .unwrap_or(defaults.position)
}

/// Checks the origin of the direction's program.
fn code(at: &str, document: &DirectionDocument, findings: &mut Findings) -> Code {
    let defines = document.defines.clone().unwrap_or_default();
    check_defines(&format!("{at}.defines"), &defines, findings);
    let dialect = document.dialect.as_deref();
    let dialect = findings.choose(
        &format!("{at}.dialect"),
        "dialect",
        dialect,
        &Dialect::NAMES,
    );
    let dialect = dialect.unwrap_or_default();
    check_entry(at, document, findings);
    let calls = calls(at, document, dialect, findings);
    let Some(object) = &document.object else {
        if let Err(message) = check_source(document.source.as_deref()) {
            findings.add(format!("{at}.source"), message);
        }
        let text = document.source.clone().unwrap_or_default();
        let files = document.files.clone().unwrap_or_default();
        files::check(
            &format!("{at}.files"),
            &files,
            text.len(),
            SOURCE_LIMIT,
            findings,
        );
        return Code::Source(SourceCode {
            text,
            files,
            dialect,
            calls,
            defines,
        });
    };
    if document.source.is_some() {
        findings.add(
            format!("{at}.object"),
            "source and object exclude each other; give one of them",
        );
    }
    let for_compilers = [
        ("dialect", document.dialect.is_some()),
        ("calls", document.calls.is_some()),
        ("files", document.files.is_some()),
        ("defines", !defines.is_empty()),
    ];
    for (field, _) in for_compilers.into_iter().filter(|(_, given)| *given) {
        let message =
            format!("{field} is for the compiler, but an object is compiled already; leave it out");
        findings.add(format!("{at}.{field}"), message);
    }
    let decoded = decode(object).map_err(|message| findings.add(format!("{at}.object"), message));
    Code::Object(decoded.unwrap_or_default())
}

/// Checks the names of variables; their types are the program's.
fn variables(
    at: &str,
    document: &DirectionDocument,
    findings: &mut Findings,
) -> BTreeMap<String, Value> {
    let field = format!("{at}.variables");
    let variables = document.variables.clone().unwrap_or_default();
    if variables.len() > DEFINES_LIMIT {
        let message = format!(
            "{} variables have values; the limit is {DEFINES_LIMIT}",
            variables.len()
        );
        findings.add(&field, message);
    }
    for name in variables
        .keys()
        .filter(|name| !names::is_c_identifier(name))
    {
        findings.add(
            &field,
            format!("{} is not a C identifier", names::quote(name)),
        );
    }
    variables
}

/// Checks the numbers of entries of maps; the program has the maps.
fn max_entries(
    at: &str,
    document: &DirectionDocument,
    findings: &mut Findings,
) -> BTreeMap<String, u32> {
    let field = format!("{at}.max_entries");
    let counts = document.max_entries.clone().unwrap_or_default();
    if counts.len() > DEFINES_LIMIT {
        let message = format!(
            "{} maps have numbers of entries; {DEFINES_LIMIT} are the limit",
            counts.len()
        );
        findings.add(&field, message);
    }
    for (map, count) in &counts {
        if !names::is_c_identifier(map) {
            findings.add(
                &field,
                format!("{} is not a C identifier", names::quote(map)),
            );
        } else if *count == 0 {
            findings.add(
                format!("{field}.{map}"),
                "0 is not a number of entries; a map has 1 or more",
            );
        }
    }
    counts
}

/// Decodes an object in base64, which may be broken into lines.
fn decode(text: &str) -> Result<Vec<u8>, String> {
    if text.len() > SOURCE_LIMIT {
        return Err(format!(
            "the object has {} bytes in base64; the limit is {SOURCE_LIMIT}",
            text.len()
        ));
    }
    let text: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    if text.is_empty() {
        return Err(
            "the object is empty; an ELF file in base64 is needed, as twinprobe build writes it"
                .to_owned(),
        );
    }
    STANDARD
        .decode(text)
        .map_err(|error| format!("the object is not base64: {error}"))
}

fn check_source(source: Option<&str>) -> Result<(), String> {
    let Some(source) = source else {
        return Err("the eBPF C source is missing; give source, or object".to_owned());
    };
    if source.trim().is_empty() {
        return Err("the source is empty; eBPF C with one program is needed".to_owned());
    }
    if source.len() > SOURCE_LIMIT {
        return Err(format!(
            "the source has {} bytes; the limit is {SOURCE_LIMIT}",
            source.len()
        ));
    }
    if let Some(at) = source.find('\0') {
        let line = 1 + source[..at].matches('\n').count();
        return Err(format!("the source contains a NUL byte in line {line}"));
    }
    Ok(())
}

fn check_entry(at: &str, document: &DirectionDocument, findings: &mut Findings) {
    let Some(entry) = document.entry.as_deref() else {
        return;
    };
    if !names::is_c_identifier(entry) {
        findings.add(
            format!("{at}.entry"),
            format!("{} is not a C identifier", names::quote(entry)),
        );
    }
}

/// Checks the functions in tables of programs.
fn calls(
    at: &str,
    document: &DirectionDocument,
    dialect: Dialect,
    findings: &mut Findings,
) -> Calls {
    let field = format!("{at}.calls");
    let mut calls = Calls::new();
    let Some(document) = &document.calls else {
        return calls;
    };
    if dialect == Dialect::Libbpf {
        findings.add(
            field,
            "calls is for the dialect bcc; in a source for libbpf call the function itself",
        );
        return calls;
    }
    if !findings.fits(&field, document.len()) {
        return calls;
    }
    for (table, slots) in document {
        if !names::is_c_identifier(table) {
            findings.add(
                &field,
                format!(
                    "{} is not a name of a table of programs",
                    names::quote(table)
                ),
            );
            continue;
        }
        if slots.len() > CALLS_LIMIT {
            findings.add(
                format!("{field}.{table}"),
                format!(
                    "{} slots have functions; the limit is {CALLS_LIMIT}",
                    slots.len()
                ),
            );
            continue;
        }
        let programs = calls.entry(table.clone()).or_default();
        for (slot, function) in slots {
            // Other spellings of a number are refused: with them, two names could mean one slot.
            let number = slot
                .parse::<u32>()
                .ok()
                .filter(|number| number.to_string() == *slot);
            match number {
                None => findings.add(
                    format!("{field}.{table}"),
                    format!(
                        "{} is not a slot; slots are numbers from 0",
                        names::quote(slot)
                    ),
                ),
                Some(_) if !names::is_c_identifier(function) => {
                    findings.add(
                        format!("{field}.{table}.{slot}"),
                        format!("{} is not a C identifier", names::quote(function)),
                    );
                }
                Some(number) => drop(programs.insert(number, function.clone())),
            }
        }
    }
    calls
}

fn check_defines(field: &str, defines: &BTreeMap<String, String>, findings: &mut Findings) {
    if defines.len() > DEFINES_LIMIT {
        findings.add(
            field,
            format!(
                "{} names are defined; the limit is {DEFINES_LIMIT}",
                defines.len()
            ),
        );
        return;
    }
    for (name, value) in defines {
        if !names::is_c_identifier(name) {
            findings.add(
                field,
                format!("{} is not a C identifier", names::quote(name)),
            );
            continue;
        }
        if name.len() > DEFINE_LIMIT {
            let (name, size) = (names::quote(name), name.len());
            findings.add(
                field,
                format!("the name {name} has {size} bytes; the limit is {DEFINE_LIMIT}"),
            );
            continue;
        }
        let field = || format!("{field}.{name}");
        if value.contains(['\n', '\r', '\0']) {
            findings.add(field(), "the value contains a line break or a NUL byte");
        }
        if value.len() > DEFINE_LIMIT {
            let size = value.len();
            findings.add(
                field(),
                format!("the value has {size} bytes; the limit is {DEFINE_LIMIT}"),
            );
        }
    }
}
