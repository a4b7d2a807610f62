//! A refusal as the daemon sends it, said so that a person can act on it.

use std::fmt;

use hyper::StatusCode;
use serde::Deserialize;

use twinprobe_ebpf_common::finding::Finding;

/// An RFC 9457 problem document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Problem {
    #[serde(skip)]
    status: StatusCode,
    title: String,
    detail: Option<String>,
    errors: Vec<Finding>,
    log: Option<String>,
}

impl Problem {
    /// From the body of an answer; one that is no problem document is shown as text.
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Self {
        let mut problem: Self = serde_json::from_slice(body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(body).trim().to_owned();
            Self { detail: (!text.is_empty()).then_some(text), ..Self::default() }
        });
        if problem.title.is_empty() {
            problem.title = status.to_string();
        }
        problem.status = status;
        problem
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        if let Some(detail) = self.detail.as_deref().filter(|detail| *detail != self.title) {
            write!(f, ": {detail}")?;
        }
        for finding in &self.errors {
            write!(f, "\n{}", line(finding, "error"))?;
        }
        if let Some(log) = self.log.as_deref().map(str::trim_end).filter(|log| !log.is_empty()) {
            write!(f, "\n\n{log}")?;
        }
        Ok(())
    }
}

/// `ingress.source:3:5: error: message`, as compilers print it.
pub(super) fn line(finding: &Finding, severity: &str) -> String {
    let mut text = String::new();
    if let Some(field) = &finding.field {
        text.push_str(field);
        for number in [finding.line, finding.line.and(finding.column)].into_iter().flatten() {
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
        assert_eq!(read(b"upstream is gone\n"), "502 Bad Gateway: upstream is gone");
        assert_eq!(read(b""), "502 Bad Gateway");
        assert_eq!(read(b"{\"title\": \"Bad\"}"), "Bad");
    }
}
