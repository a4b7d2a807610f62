//! The files of `--rules`.

use std::path::Path;

use twinprobe_api::{ParseError, RuleDocument, parse_any_yaml};
use twinprobe_client::SigningKeys;
use twinprobe_rules::{FLEET, FleetEvent, FleetRule};

use super::signing::KeyFile;
use super::standing::ShownStanding;

/// A rule with its name. One of a file has the name of the file.
#[derive(Clone, Debug)]
pub struct NamedRule {
    pub name: String,
    pub document: RuleDocument,
    pub origin: RuleOrigin,
    pub standing: ShownStanding,
    /// The keys that sign the rule's notifications.
    pub keys: Option<KeyFile>,
}

/// The beginning of a rule.
#[derive(Clone, Debug)]
pub struct RuleOrigin {
    /// Windows and events up to this time are not the rule's, nanoseconds since the Unix epoch.
    pub since: i64,
    /// The events of the rule that others than daemons remember.
    pub events: Vec<FleetEvent>,
}

impl Default for RuleOrigin {
    fn default() -> Self {
        Self { since: i64::MIN, events: Vec::new() }
    }
}

impl NamedRule {
    /// Reads the keys that sign notifications; `None` if they are not signed.
    pub async fn keys(&self) -> Result<Option<SigningKeys>, String> {
        let Some(file) = self.keys.clone() else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || file.read());
        read.await.map_err(|error| error.to_string())?.map(Some)
    }

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
        let (origin, standing, keys) = Default::default();
        Ok(Self { name, document, origin, standing, keys })
    }
}
