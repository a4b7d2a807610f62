//! Templates: configurations that rules deploy after filling in values of windows.

use serde::{Deserialize, Serialize};

use crate::config::document::ConfigDocument;

/// The answer to `GET /v1/templates`, without sources.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TemplateList {
    pub templates: Vec<TemplateStatus>,
}

/// The answer to `GET /v1/templates/{name}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemplateStatus {
    pub name: String,
    /// The number of configurations that the template has had.
    pub revision: u64,
    /// The time when the template was first put, RFC 3339.
    pub created: String,
    /// The time when its present configuration was put, RFC 3339.
    pub changed: String,
    pub pushed_by: String,
    /// The rules that deploy it.
    pub rules: Vec<String>,
    pub config: ConfigDocument,
}

impl TemplateStatus {
    /// Removes the sources, which may be large, for lists.
    #[must_use]
    pub fn without_sources(mut self) -> Self {
        self.config.forget_sources();
        self
    }
}
