//! Names and other texts in the proposal.

use std::path::Path;

/// The name of a probe whose file's name can't be the name of a probe.
pub const UNNAMED: &str = "probe";

/// Returns the name of the probe: the name of the file, without characters that a probe's name
/// can't have.
pub fn name(program: &Path) -> String {
    let stem = program
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let stem = stem.split('.').next().unwrap_or_default();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let name: String = stem
        .chars()
        .map(|letter| if fits(letter) { letter } else { '-' })
        .take(64)
        .collect();
    if name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) {
        name
    } else {
        UNNAMED.to_owned()
    }
}

/// Returns the symbol of `map` of a metric.
pub fn symbol(map: &str) -> &str {
    map.rsplit(':').next().unwrap_or(map)
}

/// Tells whether a name can be that of a variable in C.
pub fn is_identifier(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    name.starts_with(is_letter)
        && name
            .chars()
            .all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

/// Returns a text as YAML: plain if its letters are harmless, else in quotes as in JSON.
pub fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./-".contains(letter);
    let begins = text.starts_with(|letter: char| letter.is_ascii_alphabetic());
    if begins && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}
