//! The reasons to refuse a configuration: findings that name the stage, field, line and correction.
//! Findings become the `errors[]` of a problem document, or lines on a client's stderr.

use std::error::Error;

use serde::{Deserialize, Serialize};

/// The name of a probe's source in findings and in debug information.
pub const SOURCE_NAME: &str = "probe.c";
/// The directory that debug information names for the files which a client sends along with a
/// source.
pub const BESIDE: &str = "/twinprobe/source";
/// The name of folders without files in [`BESIDE`]. The path `..` leads from such a folder back
/// into the source's folder.
pub const INNER: &str = "=";

/// The stage of a deployment at which the finding was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Config,
    Compile,
    /// The check of the program's actions and of its cost.
    Admission,
    Load,
    Attach,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub stage: Stage,
    /// The path in the configuration, such as `ingress.metrics[0].agg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The line in the client's source; the first line is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column in the line; the first column is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    pub message: String,
    /// Advice about the correction of a frequent mistake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Returns the name of a file that a client has sent along, by the path in debug information or in
/// clang's messages; `None` for other files.
pub fn name_beside(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.strip_prefix(BESIDE)?.strip_prefix('/')?.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

impl Finding {
    pub fn new(stage: Stage, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            stage,
            field: Some(field.into()),
            line: None,
            column: None,
            message: message.into(),
            hint: None,
        }
    }

    pub fn config(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Stage::Config, field, message)
    }

    #[must_use]
    pub fn at(mut self, line: u32, column: Option<u32>) -> Self {
        self.line = Some(line);
        self.column = column;
        self
    }
}

/// All mistakes of a configuration, which are found together where that is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub findings: Vec<Finding>,
    /// The output of the compiler or the verifier.
    pub log: Option<String>,
}

impl Rejection {
    pub fn with_log(mut self, log: impl Into<String>) -> Self {
        self.log = Some(log.into());
        self
    }
}

impl From<Finding> for Rejection {
    fn from(finding: Finding) -> Self {
        Self {
            findings: vec![finding],
            log: None,
        }
    }
}

impl From<Vec<Finding>> for Rejection {
    fn from(findings: Vec<Finding>) -> Self {
        Self {
            findings,
            log: None,
        }
    }
}

/// Returns the message of an error with the messages of its causes, each of them once.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}
