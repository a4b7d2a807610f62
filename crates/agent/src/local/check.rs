//! The checks of `twinprobe doctor`.

use serde::Serialize;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    Ok,
    /// The daemon runs, but lacks something.
    Warning,
    /// The daemon can't run.
    Failed,
}

/// A check with its findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub verdict: CheckVerdict,
    pub found: String,
    /// The advice about what to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl Check {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: CheckVerdict::Ok,
            found: found.into(),
            change: None,
        }
    }

    pub fn warning(
        name: &'static str,
        found: impl Into<String>,
        change: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict: CheckVerdict::Warning,
            found: found.into(),
            change: Some(change.into()),
        }
    }

    pub fn failed(name: &'static str, found: impl Into<String>, change: impl Into<String>) -> Self {
        Self {
            name,
            verdict: CheckVerdict::Failed,
            found: found.into(),
            change: Some(change.into()),
        }
    }
}
