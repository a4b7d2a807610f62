//! The rules of the files that a source includes.

use std::collections::BTreeMap;

use twinprobe_ebpf_common::finding::SOURCE_NAME;

use crate::validate::findings::Findings;
use crate::validate::names;

/// The most files, and the most bytes of a name.
const FILES: usize = 256;
const NAME: usize = 255;

/// Checks the names and the texts of files. Together with the source, which has `source` bytes,
/// they have at most `limit` bytes.
pub fn check(
    field: &str,
    files: &BTreeMap<String, String>,
    source: usize,
    limit: usize,
    findings: &mut Findings,
) {
    if files.len() > FILES {
        findings.add(
            field,
            format!("{} files are too many; the limit is {FILES}", files.len()),
        );
        return;
    }
    for (name, text) in files {
        if let Err(message) = check_name(name) {
            findings.add(field, message);
            continue;
        }
        let inside = format!("{name}/");
        if let Some(other) = files.keys().find(|other| other.starts_with(&inside)) {
            findings.add(
                field,
                format!(
                    "{} is a file, and a folder of {}",
                    names::quote(name),
                    names::quote(other)
                ),
            );
        }
        if let Some(at) = text.find('\0') {
            let line = 1 + text[..at].matches('\n').count();
            findings.add(
                format!("{field}.{name}"),
                format!("the file contains a NUL byte in line {line}"),
            );
        }
    }
    let all = files
        .values()
        .map(String::len)
        .fold(source, usize::saturating_add);
    if all > limit && source <= limit {
        findings.add(
            field,
            format!("the source and its files have {all} bytes; the limit is {limit}"),
        );
    }
}

/// Checks the path of a file below the folder of the source.
fn check_name(name: &str) -> Result<(), String> {
    let quoted = names::quote(name);
    if name.starts_with('/') {
        return Err(format!(
            "{quoted} is an absolute path; give the path from the source's folder, as in lib/sizes.h"
        ));
    }
    if name.split('/').any(|part| part == "..") {
        return Err(format!(
            "{quoted} leaves the source's folder; put the file into it"
        ));
    }
    if name.len() > NAME {
        return Err(format!(
            "the name {quoted} has {} bytes; the limit is {NAME}",
            name.len()
        ));
    }
    let is_letter = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-' | '&' | '@' | '=' | ',')
    };
    let is_part = |part: &str| !part.is_empty() && part != "." && part.chars().all(is_letter);
    if !name.split('/').all(is_part) {
        return Err(format!(
            "{quoted} is not a name of a file; letters, digits, '_', '.', '+', '-', '&', '@', '=', ',', and '/' between folders are allowed"
        ));
    }
    if name.rsplit('/').next() == Some(SOURCE_NAME) {
        return Err(format!(
            "{SOURCE_NAME} is the name of the source itself; give the file another name"
        ));
    }
    Ok(())
}
