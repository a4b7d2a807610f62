//! The program of a direction: a source and the options of its compilation, or an object.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use twinprobe_api::DirectionDocument;
use twinprobe_ebpf_common::unit::{Calls, Dialect};

use crate::validate::findings::Findings;
use crate::validate::{files, names};

/// The limit of a source, and of an object in base64, in bytes.
const SOURCE_LIMIT: usize = 1 << 20;
/// The most defines, and the most entries of other lists of names.
pub const DEFINES_LIMIT: usize = 256;
/// The limit of a table's slots with functions: the kernel takes 256 functions of one program.
const CALLS_LIMIT: usize = 250;
/// The limit in bytes of a define's name, and of its value.
const DEFINE_LIMIT: usize = 4 << 10;

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

/// Checks the origin of the direction's program, and adds its mistakes to `findings`.
pub fn check(at: &str, document: &DirectionDocument, findings: &mut Findings) -> Code {
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
        let functions = functions(&format!("{field}.{table}"), slots, findings);
        calls.insert(table.clone(), functions);
    }
    calls
}

/// Checks the functions in the slots of a table.
fn functions(
    field: &str,
    slots: &BTreeMap<String, String>,
    findings: &mut Findings,
) -> BTreeMap<u32, String> {
    let mut functions = BTreeMap::new();
    for (slot, function) in slots {
        // Other spellings of a number are refused: with them, two names could mean one slot.
        let number = slot
            .parse::<u32>()
            .ok()
            .filter(|number| number.to_string() == *slot);
        match number {
            None => findings.add(
                field,
                format!(
                    "{} is not a slot; slots are numbers from 0",
                    names::quote(slot)
                ),
            ),
            Some(_) if !names::is_c_identifier(function) => {
                findings.add(
                    format!("{field}.{slot}"),
                    format!("{} is not a C identifier", names::quote(function)),
                );
            }
            Some(number) => drop(functions.insert(number, function.clone())),
        }
    }
    functions
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
