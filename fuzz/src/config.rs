//! The body of the fuzz target `config`.

use twinprobe_api::{ParseError, parse_document, parse_yaml};

/// Parses a configuration as JSON and as YAML. A configuration that is read and written again can
/// be read again.
pub fn config(input: &[u8]) {
    for parsed in [parse_document(input), parse_yaml(input)] {
        match parsed {
            Ok(document) => {
                let written = serde_json::to_vec(&document).expect("JSON");
                assert_eq!(parse_document(&written), Ok(document.clone()));
                assert_eq!(parse_yaml(&written), Ok(document));
            }
            Err(ParseError::Malformed {
                message,
                line,
                column,
            }) => {
                assert!(
                    !message.is_empty() && line > 0 && column > 0,
                    "{message:?} {line}:{column}"
                );
            }
            Err(ParseError::Invalid(rejection)) => assert!(!rejection.findings.is_empty()),
        }
    }
}
