//! The parsing of bytes into a [`ConfigDocument`]. Text that is neither JSON nor YAML, and JSON or
//! YAML that is not a configuration, are different errors.

use serde::de::{DeserializeOwned, IgnoredAny};
use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::request::MapEntry;

use super::bounds::{check_json, check_yaml};
use super::document::ConfigDocument;
use super::error::ParseError;
use super::present::Object;
use crate::entries::NewEntries;

/// Reads one configuration from JSON.
pub fn parse_document(bytes: &[u8]) -> Result<ConfigDocument, ParseError> {
    checked(json(bytes)?)
}

/// Reads one configuration from YAML, by the same rules.
pub fn parse_yaml(bytes: &[u8]) -> Result<ConfigDocument, ParseError> {
    checked(yaml(bytes)?)
}

/// Reads the entries of a map from JSON.
pub fn parse_entries(bytes: &[u8]) -> Result<Vec<MapEntry>, ParseError> {
    json(bytes).map(|NewEntries(entries)| entries)
}

/// Reads the entries of a map from YAML.
pub fn parse_entries_yaml(bytes: &[u8]) -> Result<Vec<MapEntry>, ParseError> {
    yaml(bytes).map(|NewEntries(entries)| entries)
}

/// Reads another document from YAML or JSON, within the bounds of configurations.
pub fn parse_any_yaml<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ParseError> {
    yaml(bytes)
}

/// Reads another document from JSON, within the same bounds.
pub fn parse_any_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ParseError> {
    json(bytes)
}

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ParseError> {
    let text = text_of(bytes)?;
    check_json(text)?;
    // The syntax of the whole text is checked first: an unknown field early in a truncated body is
    // still a 400.
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| malformed(&error))?;
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let cause = error.into_inner();
        if !cause.is_data() {
            return malformed(&cause);
        }
        invalid(path, without_position(&cause))
    })
}

fn yaml<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ParseError> {
    let text = text_of(bytes)?;
    check_yaml(text)?;
    let malformed = |error: yaml_serde::Error| {
        let (line, column) = error
            .location()
            .map_or((1, 1), |at| (at.line(), at.column()));
        ParseError::Malformed {
            message: without_place(&error, "."),
            line: line.max(1),
            column: column.max(1),
        }
    };
    yaml_serde::from_str::<IgnoredAny>(text).map_err(malformed)?;
    let yaml = yaml_serde::Deserializer::from_str(text);
    serde_path_to_error::deserialize(yaml).map_err(|error| {
        let path = error.path().to_string();
        let message = without_place(error.inner(), &path);
        invalid(path, message)
    })
}

fn text_of(bytes: &[u8]) -> Result<&str, ParseError> {
    let text = std::str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
    if text.trim().is_empty() {
        let message = "the body is empty; an object is expected".to_owned();
        return Err(ParseError::Malformed {
            message,
            line: 1,
            column: 1,
        });
    }
    Ok(text)
}

fn invalid(path: String, message: String) -> ParseError {
    let field = (path != ".").then_some(path);
    let finding = Finding {
        stage: Stage::Config,
        field,
        line: None,
        column: None,
        message,
        hint: None,
    };
    ParseError::Invalid(finding.into())
}

fn checked(Object(document): Object<ConfigDocument>) -> Result<ConfigDocument, ParseError> {
    for (name, direction) in [("ingress", &document.ingress), ("egress", &document.egress)] {
        if direction
            .as_ref()
            .is_some_and(|direction| direction.source_file.is_some())
        {
            let message =
                "the daemon reads no files; send the text as `source`, as `twinprobe apply` does";
            let finding = Finding::config(format!("{name}.source_file"), message);
            return Err(ParseError::Invalid(finding.into()));
        }
    }
    Ok(document)
}

fn not_utf8(bytes: &[u8], at: usize) -> ParseError {
    let before = &bytes[..at];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + before
        .iter()
        .rev()
        .take_while(|byte| **byte != b'\n')
        .count();
    ParseError::Malformed {
        message: "the body is not UTF-8".to_owned(),
        line,
        column,
    }
}

fn malformed(error: &serde_json::Error) -> ParseError {
    ParseError::Malformed {
        message: without_position(error),
        line: error.line().max(1),
        column: error.column().max(1),
    }
}

/// Returns the message without the position that serde_json appends: the position is a field of its
/// own, or meaningless next to a path.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&suffix).unwrap_or(&text).to_owned()
}

/// Returns the message without the path before it and the position after it.
fn without_place(error: &yaml_serde::Error, path: &str) -> String {
    let text = error.to_string();
    let text = text
        .strip_prefix(path)
        .and_then(|text| text.strip_prefix(": "))
        .unwrap_or(&text);
    let place = error
        .location()
        .map(|at| format!(" at line {} column {}", at.line(), at.column()));
    // A message about a flow node continues after the position.
    place.map_or(text.to_owned(), |place| text.replacen(&place, "", 1))
}

#[cfg(test)]
mod tests;
