//! Parser of clang's stderr: findings that point into the user's source.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use twinprobe_ebpf_common::finding::{Finding, SOURCE_NAME, Stage, name_beside};

/// The findings in clang's log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    pub errors: Vec<Finding>,
    pub warnings: Vec<Finding>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClangSeverity {
    Error,
    Warning,
    /// A message that explains the previous diagnostic. It is only in the log.
    Note,
}

const MARKERS: [(&str, ClangSeverity); 5] = [
    ("fatal error: ", ClangSeverity::Error),
    ("error: ", ClangSeverity::Error),
    ("warning: ", ClangSeverity::Warning),
    ("note: ", ClangSeverity::Note),
    ("remark: ", ClangSeverity::Note),
];

/// A position in clang's form; lines and columns start at 1, and 0 means unknown.
#[derive(Clone, Copy)]
struct Location<'a> {
    file: &'a str,
    line: u32,
    column: Option<u32>,
}

/// Reads the diagnostics of the source at the configuration's `field`.
pub fn parse(field: &str, log: &str) -> Diagnostics {
    let mut found = Diagnostics::default();
    let mut includes = Includes::default();
    let mut headers = HashSet::new();
    for line in log.lines() {
        if let Some(from) = line.strip_prefix("In file included from ") {
            includes.enter(from);
            continue;
        }
        let Some((severity, location, message)) = diagnostic(line) else {
            continue;
        };
        // Other mistakes in a header of the host follow from the first one.
        let of_host = location
            .map(|location| location.file)
            .filter(|file| file.starts_with('/') && name_beside(file).is_none());
        if severity == ClangSeverity::Error && of_host.is_some_and(|file| !headers.insert(file)) {
            continue;
        }
        let list = match severity {
            ClangSeverity::Error => &mut found.errors,
            ClangSeverity::Warning => &mut found.warnings,
            ClangSeverity::Note => continue,
        };
        list.push(finding(field, location, message, &mut includes));
    }
    // Another message of clang about a section that has the name of its function.
    if found
        .errors
        .iter()
        .any(|error| error.message.contains("clang gives both one symbol"))
    {
        found
            .errors
            .retain(|error| !error.message.ends_with("is already defined"));
    }
    // This message of clang only says that there were other errors.
    if found.errors.len() > 1 {
        found
            .errors
            .retain(|error| !error.message.starts_with("clang frontend command failed"));
    }
    found
}

/// Returns the log without the end of an internal error of clang (stack, arguments, advice where to
/// report it).
pub fn without_crash_report(log: &str) -> &str {
    log.split("PLEASE submit a bug report")
        .next()
        .unwrap_or(log)
}

/// Splits `FILE:LINE:COLUMN: SEVERITY: MESSAGE`, where the position may be missing. Other lines
/// (source excerpts, carets, counts) are not diagnostics.
fn diagnostic(line: &str) -> Option<(ClangSeverity, Option<Location<'_>>, &str)> {
    if let Some(rest) = line.strip_prefix("Error at line ") {
        let (number, message) = rest.split_once(": ")?;
        let location = Location {
            file: SOURCE_NAME,
            line: number.parse().ok()?,
            column: None,
        };
        return Some((ClangSeverity::Error, Some(location), message));
    }
    for (marker, severity) in MARKERS {
        if let Some(message) = line.strip_prefix(marker) {
            return Some((severity, None, message));
        }
    }
    let split = |(marker, severity): (&str, ClangSeverity)| {
        let at = line.find(&format!(": {marker}"))?;
        Some((at, severity, &line[at + 2 + marker.len()..]))
    };
    let (at, severity, message) = MARKERS
        .into_iter()
        .filter_map(split)
        .min_by_key(|(at, ..)| *at)?;
    let origin = &line[..at];
    match location(origin) {
        Some(location) => Some((severity, Some(location), message)),
        None => is_clang(origin).then_some((severity, None, message)),
    }
}

/// Parses `FILE:LINE:COLUMN` or `FILE:LINE`.
fn location(text: &str) -> Option<Location<'_>> {
    if text.starts_with(char::is_whitespace) {
        return None;
    }
    let (head, last) = text.rsplit_once(':')?;
    let last: u32 = last.parse().ok()?;
    if let Some((file, line)) = head.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        return Some(Location {
            file,
            line,
            column: Some(last),
        });
    }
    Some(Location {
        file: head,
        line: last,
        column: None,
    })
}

/// Tells whether clang's driver wrote the message: its prefix is the name of the call, perhaps with
/// a version.
fn is_clang(origin: &str) -> bool {
    origin
        .rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with("clang"))
        && !origin.contains(' ')
}

fn finding(
    field: &str,
    location: Option<Location<'_>>,
    message: &str,
    includes: &mut Includes,
) -> Finding {
    let new = |field: &str, message: &str| Finding::new(Stage::Compile, field, message);
    let Some(location) = location else {
        let (line, column) = position_inside(message);
        return at(new(field, &plain(message)), line, column);
    };
    if let Some(name) = name_beside(location.file) {
        includes.chain = None;
        let files = field
            .strip_suffix("source")
            .map(|at| format!("{at}files.{name}"));
        return at(
            new(files.as_deref().unwrap_or(field), &plain(message)),
            location.line,
            location.column,
        );
    }
    match location.file {
        SOURCE_NAME => {
            includes.chain = None;
            at(new(field, &plain(message)), location.line, location.column)
        }
        // Lines here number the arguments of clang, which the user does not see; the message names
        // the macro.
        "<command line>" | "<built-in>" => {
            let defines = field
                .strip_suffix("source")
                .map(|at| format!("{at}defines"));
            new(defines.as_deref().unwrap_or(field), message)
        }
        file => {
            let message = format!("in {file}:{}: {message}", location.line);
            at(new(field, &message), includes.line_of(file), None)
        }
    }
}

fn at(finding: Finding, line: u32, column: Option<u32>) -> Finding {
    if line == 0 {
        finding
    } else {
        finding.at(line, column.filter(|column| *column > 0))
    }
}

/// Finds a position in the user's source inside a message of the code generator (`... ,
/// probe.c:5:36`).
fn position_inside(message: &str) -> (u32, Option<u32>) {
    let number = |text: &str| -> (u32, usize) {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        (text[..digits].parse().unwrap_or(0), digits)
    };
    let Some((_, rest)) = message.split_once(&format!("{SOURCE_NAME}:")) else {
        return (0, None);
    };
    let (line, digits) = number(rest);
    let column = rest[digits..].strip_prefix(':').map(|rest| number(rest).0);
    (line, column)
}

/// Replaces messages that name only internals of the backend, and shortens messages in which a
/// header of the daemon explains the mistake in its own words.
fn plain(message: &str) -> String {
    if message.contains("signed division")
        || message.contains("Cannot select") && message.contains("= sdiv")
    {
        return "signed division is not supported; make the operands unsigned".to_owned();
    }
    if let Some(assertion) = ["static_assert failed", "static assertion failed"]
        .into_iter()
        .find_map(|prefix| message.strip_prefix(prefix))
        && let Some(words) = words_of_assertion(assertion)
    {
        return words;
    }
    let deprecated = [
        "'twinprobe_trace_printk' is deprecated: ",
        "'call' is deprecated: nothing fills",
    ];
    if deprecated.iter().any(|begin| message.starts_with(begin))
        && let Some((_, words)) = message.split_once("deprecated: ")
    {
        return words.split(" [-W").next().unwrap_or(words).to_owned();
    }
    if message.contains("increment_is_for_integers") {
        return "increment() is for tables whose values are integers; look the entry up and change its fields".to_owned();
    }
    if let Some(name) = message.strip_suffix(" changed binding to STB_GLOBAL") {
        return format!(
            "SEC(\"{name}\") has the name of the function {name}, and clang gives both one symbol: name the section otherwise, as SEC(\"xdp\")"
        );
    }
    if let Some(interface) = message.strip_prefix("use of undeclared identifier 'IFINDEX_") {
        let interface = interface.trim_end_matches('\'');
        return format!(
            "REDIRECT({interface}) needs the index of the interface; add IFINDEX_{interface} to defines"
        );
    }
    if message.starts_with("no member named") && message.ends_with("in 'struct xdp_md'") {
        return format!(
            "{message}, the context at the hook xdp; set hook to tc if the source is for struct __sk_buff"
        );
    }
    message.to_owned()
}

/// Returns the text of a failed assertion, which follows "failed"; `None` without a text. The
/// condition may be before the text.
fn words_of_assertion(text: &str) -> Option<String> {
    let text = match text.strip_prefix(" due to requirement '") {
        Some(condition) => {
            let end = condition.find("': ").or_else(|| condition.find("' \""))?;
            &condition[end + 1..]
        }
        None => text,
    };
    let quoted = text
        .strip_prefix(" \"")
        .and_then(|text| text.strip_suffix('"'));
    Some(
        quoted
            .or_else(|| text.strip_prefix(": "))?
            .replace("\\\"", "\""),
    )
}

/// The line of the user's source that includes each header. clang prints the chain of includes only
/// with the first diagnostic of a header, outermost file first.
#[derive(Default)]
struct Includes {
    by_header: HashMap<String, u32>,
    chain: Option<u32>,
}

impl Includes {
    fn enter(&mut self, from: &str) {
        let from = location(from.trim_end_matches([':', ',']));
        if let Some(Location {
            file: SOURCE_NAME,
            line,
            ..
        }) = from
        {
            self.chain = Some(line);
        }
    }

    /// Returns 0 if the line is not known.
    fn line_of(&mut self, header: &str) -> u32 {
        if let Some(line) = self.chain.take() {
            self.by_header.insert(header.to_owned(), line);
        }
        self.by_header.get(header).copied().unwrap_or(0)
    }
}
