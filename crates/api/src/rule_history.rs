//! The present and earlier documents of a rule.

use serde::{Deserialize, Serialize};

use crate::rule::RuleDocument;

/// The answer to `GET /v1/rules/{name}/revisions`, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleRevisionList {
    pub revisions: Vec<RuleRevision>,
}

/// The present or an earlier document of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleRevision {
    pub revision: u64,
    /// The time when the document was put, RFC 3339.
    pub created: String,
    pub pushed_by: String,
    /// The sender's reason, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// True for the document that the daemon runs.
    pub current: bool,
    pub rule: RuleDocument,
}
