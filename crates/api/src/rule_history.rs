//! The documents that a rule has had.

use serde::{Deserialize, Serialize};

use crate::rule::RuleDocument;

/// The answer to `GET /v1/rules/{name}/revisions`, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleRevisionList {
    pub revisions: Vec<RuleRevision>,
}

/// A document that a rule has or had.
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
