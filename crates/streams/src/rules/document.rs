//! The files of `--rules`.

use std::path::Path;

use twinprobe_api::{ParseError, RuleDocument, parse_any_yaml};
use twinprobe_rules::{FLEET, FleetRule};

/// A rule with its name, which is that of its file.
#[derive(Clone, Debug)]
pub struct NamedRule {
    pub name: String,
    pub document: RuleDocument,
}

impl NamedRule {
    /// Reads a rule. Returns each mistake with its field.
    pub fn read(path: &Path) -> Result<Self, Vec<(String, String)>> {
        let one = |message: String| vec![(String::new(), message)];
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read(path).map_err(|error| one(format!("can't be read: {error}")))?;
        let told = |rejection: twinprobe_ebpf_common::finding::Rejection| {
            let findings = rejection.findings.into_iter();
            findings.map(|finding| (finding.field.unwrap_or_default(), finding.message)).collect::<Vec<_>>()
        };
        let document: RuleDocument = parse_any_yaml(&text).map_err(|error| match error {
            ParseError::Malformed { message, line, column } => {
                one(format!("line {line}, column {column}: {message}"))
            }
            ParseError::Invalid(rejection) => told(rejection),
        })?;
        if document.scope.as_deref() != Some(FLEET) {
            let message =
                "a stream runs rules with `scope: fleet`; give others to daemons: `twinprobe rules apply`";
            return Err(vec![("scope".to_owned(), message.to_owned())]);
        }
        FleetRule::check(&document).map_err(told)?;
        Ok(Self { name, document })
    }
}
