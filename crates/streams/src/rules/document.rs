//! The files of `--rules`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use twinprobe_api::{ParseError, RuleDocument, parse_any_yaml, place_of};
use twinprobe_client::SigningKeys;
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_rules::{FLEET, FleetEvent, FleetRule};

use super::signing::KeyFile;
use super::standing::ShownStanding;
use crate::config::mistake::StreamMistake;

/// A rule with its name. A rule of a file has the name of the file.
#[derive(Clone, Debug)]
pub struct NamedRule {
    pub name: String,
    pub document: RuleDocument,
    pub origin: RuleOrigin,
    pub standing: ShownStanding,
    /// The keys that sign the rule's notifications.
    pub keys: Option<KeyFile>,
    /// The file of the rule, if it is from one.
    pub file: Option<RuleText>,
}

/// A file with a rule.
#[derive(Clone, Debug)]
pub struct RuleText {
    path: PathBuf,
    text: Arc<str>,
}

impl RuleText {
    /// Returns a mistake with its place in the file, and in the expression if it is in one.
    pub fn mistake(&self, finding: Finding) -> StreamMistake {
        let Finding {
            field,
            message,
            line,
            column,
            ..
        } = finding;
        let mut field = field.unwrap_or_default();
        let place = place_of(&self.text, &field).map(|(line, column)| format!(":{line}:{column}"));
        let place = format!("{}{}", self.path.display(), place.unwrap_or_default());
        match (line, column) {
            (Some(1), Some(column)) => field.push_str(&format!(", column {column}")),
            (Some(line), Some(column)) => {
                field.push_str(&format!(", line {line}, column {column}"));
            }
            _ => {}
        }
        StreamMistake {
            place,
            field,
            message,
        }
    }
}

/// The beginning of a rule.
#[derive(Clone, Debug)]
pub struct RuleOrigin {
    /// Windows and events up to this time are not the rule's, nanoseconds since the Unix epoch.
    pub since: i64,
    /// The events of the rule that other hosts than daemons remember.
    pub events: Vec<FleetEvent>,
}

impl Default for RuleOrigin {
    fn default() -> Self {
        Self {
            since: i64::MIN,
            events: Vec::new(),
        }
    }
}

impl NamedRule {
    /// Reads the keys that sign notifications; `None` if they are not signed.
    pub async fn keys(&self) -> Result<Option<SigningKeys>, String> {
        let Some(file) = self.keys.clone() else {
            return Ok(None);
        };
        let read = tokio::task::spawn_blocking(move || file.read());
        read.await.map_err(|error| error.to_string())?.map(Some)
    }

    /// Reads a rule. Returns each mistake with its place.
    pub fn read(path: &Path) -> Result<Self, Vec<StreamMistake>> {
        let one = |place: String, message: String| {
            vec![StreamMistake {
                place,
                field: String::new(),
                message,
            }]
        };
        let shown = path.display();
        let name = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        let text = std::fs::read_to_string(path);
        let text =
            text.map_err(|error| one(shown.to_string(), format!("can't be read: {error}")))?;
        let file = RuleText {
            path: path.to_owned(),
            text: text.into(),
        };
        let told = |rejection: Rejection| {
            rejection
                .findings
                .into_iter()
                .map(|finding| file.mistake(finding))
                .collect::<Vec<_>>()
        };
        let document: RuleDocument =
            parse_any_yaml(file.text.as_bytes()).map_err(|error| match error {
                ParseError::Malformed {
                    message,
                    line,
                    column,
                } => one(format!("{shown}:{line}:{column}"), message),
                ParseError::Invalid(rejection) => told(rejection),
            })?;
        if document.scope.as_deref() != Some(FLEET) {
            let message = "a stream runs rules with `scope: fleet`; give others to daemons: `twinprobe rules apply`";
            return Err(vec![file.mistake(Finding::config("scope", message))]);
        }
        FleetRule::check(&document).map_err(told)?;
        let (origin, standing, keys) = Default::default();
        Ok(Self {
            name,
            document,
            origin,
            standing,
            keys,
            file: Some(file),
        })
    }
}
