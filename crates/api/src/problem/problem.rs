//! A refusal from the daemon, and its text for a person who must act on it.

use std::fmt;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::finding::Finding;

/// An RFC 9457 problem document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    pub detail: String,
    pub errors: Vec<Finding>,
    /// The output of the compiler or of the verifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            ..Self::default()
        }
    }

    /// Reads the body of an answer. A body that is not a problem document is shown as text.
    pub fn read(status: StatusCode, body: &[u8]) -> Self {
        let mut problem: Self = serde_json::from_slice(body).unwrap_or_else(|_| Self {
            detail: String::from_utf8_lossy(body).trim().to_owned(),
            ..Self::default()
        });
        if problem.title.is_empty() {
            problem.title = status.to_string();
        }
        problem.status = status.as_u16();
        problem
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        if !self.detail.is_empty() && self.detail != self.title {
            write!(f, ": {}", self.detail)?;
        }
        for finding in &self.errors {
            write!(f, "\n{}", finding_line(finding, "error"))?;
        }
        if let Some(log) = self
            .log
            .as_deref()
            .map(str::trim_end)
            .filter(|log| !log.is_empty())
        {
            write!(f, "\n\n{log}")?;
        }
        Ok(())
    }
}

/// Formats a finding as compilers do: `ingress.source:3:5: error: message`.
pub fn finding_line(finding: &Finding, severity: &str) -> String {
    let mut text = String::new();
    if let Some(field) = &finding.field {
        text.push_str(field);
        for number in [finding.line, finding.line.and(finding.column)]
            .into_iter()
            .flatten()
        {
            text.push_str(&format!(":{number}"));
        }
        text.push_str(": ");
    }
    text + severity + ": " + &finding.message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_like_a_compilers_answer() {
        let body = br#"{"type": "about:blank", "title": "Invalid probe", "status": 422, "detail": "it does not compile",
            "errors": [{"stage": "compile", "field": "ingress.source", "line": 3, "column": 5, "message": "expected ';'"},
                       {"stage": "config", "field": "format", "message": "unknown"},
                       {"stage": "attach", "message": "no such device"}],
            "log": "probe.c:3:5: error\n"}"#;
        assert_eq!(
            Problem::read(StatusCode::UNPROCESSABLE_ENTITY, body).to_string(),
            "Invalid probe: it does not compile\n\
             ingress.source:3:5: error: expected ';'\n\
             format: error: unknown\n\
             error: no such device\n\
             \n\
             probe.c:3:5: error"
        );
    }

    #[test]
    fn other_bodies_are_shown_as_they_are() {
        let read = |body: &[u8]| Problem::read(StatusCode::BAD_GATEWAY, body).to_string();
        assert_eq!(
            read(b"upstream is gone\n"),
            "502 Bad Gateway: upstream is gone"
        );
        assert_eq!(read(b""), "502 Bad Gateway");
        assert_eq!(read(b"{\"title\": \"Bad\"}"), "Bad");
    }
}
