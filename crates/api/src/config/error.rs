//! The mistakes in a text that make it invalid as a configuration.

use twinprobe_ebpf_common::finding::Rejection;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Text with another syntax. Positions are 1-based and count bytes.
    #[error("{message} (line {line}, column {column})")]
    Malformed {
        message: String,
        line: usize,
        column: usize,
    },
    /// JSON or YAML, but with an unknown or repeated field or a value of the wrong type.
    #[error("{}", summary(.0))]
    Invalid(Rejection),
}

fn summary(rejection: &Rejection) -> String {
    let findings = rejection
        .findings
        .iter()
        .map(|finding| match &finding.field {
            Some(field) => format!("{field}: {}", finding.message),
            None => finding.message.clone(),
        });
    findings.collect::<Vec<_>>().join("; ")
}
