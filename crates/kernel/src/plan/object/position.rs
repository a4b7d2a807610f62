//! The positions in source files that instructions were compiled from.

use std::ffi::CStr;

use aya_obj::Function;
use twinprobe_ebpf_common::finding::{Finding, SOURCE_NAME, name_beside};

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
    pub fn of(btf: &[u8], function: &Function, instruction: usize) -> Option<Self> {
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
    pub fn place(&self, field: &str, finding: Finding) -> Finding {
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

/// Returns line and column of the user's source that an instruction was compiled from: those of the
/// last record up to the instruction that is not from a header.
pub fn source_position(btf: &[u8], function: &Function, instruction: usize) -> Option<(u32, u32)> {
    let is_source = |file: &str| file.rsplit('/').next() == Some(SOURCE_NAME);
    position(btf, function, instruction, is_source).map(|(_, line, column)| (line, column))
}

/// Returns the file, the line and the column of an instruction: those of the last record up to it
/// whose file is wanted.
pub fn position<'a>(
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
