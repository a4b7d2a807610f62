//! The result of a conversion, and the common code of conversions.

use serde_json::{Map, Value};

/// A file that was converted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Converted {
    /// The configurations for `twinprobe apply`.
    pub probes: Vec<Value>,
    /// Notes about omitted fields, and advice about them.
    pub notes: Vec<String>,
}

/// Values for fields that the file lacks, or instead of values in the file.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub name: Option<String>,
    pub interface: Option<String>,
}

/// The reason why a file can't be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error("the file is not JSON")]
    Json(#[from] serde_json::Error),
    #[error(
        "this is neither a data-plane configuration of dynmon (ingress-path, egress-path) nor a configuration of DeChainy \
         (probes, clusters, or one probe with ingress or egress)"
    )]
    Unknown,
    #[error("{at}: {problem}")]
    Field { at: String, problem: String },
    #[error("it has no probe with a source")]
    Empty,
}

impl ConvertError {
    pub(super) fn field(at: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            at: at.into(),
            problem: problem.into(),
        }
    }
}

/// Returns a field that must be text unless the field is missing or empty.
pub(super) fn text<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    at: &str,
) -> Result<Option<&'a str>, ConvertError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)
            .filter(|text| !text.trim().is_empty())
            .map(String::as_str)),
        Some(_) => Err(ConvertError::field(
            format!("{at}{name}"),
            "is not a string",
        )),
    }
}

/// Turns any text into the name of a probe.
pub(super) fn probe_name(text: &str) -> String {
    let words =
        text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_' && char != '.');
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}
