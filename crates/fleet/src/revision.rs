//! Names of revisions. Equal configurations have equal names, so that a revision is recognised
//! everywhere.

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use twinprobe_api::{ConfigDocument, RuleDocument};

/// The number of digits of the digest in a revision's name.
const DIGITS: usize = 12;

/// Returns the SHA-256 of a configuration, in hexadecimal digits. The name in the configuration
/// does not count: a daemon knows a probe by the name in the path.
pub fn digest(config: &ConfigDocument) -> String {
    let mut config = config.clone();
    config.name = None;
    hexadecimal(&config)
}

/// Returns the SHA-256 of a rule, in hexadecimal digits.
pub fn rule_digest(rule: &RuleDocument) -> String {
    hexadecimal(rule)
}

/// Returns the part of a digest for names.
pub fn short(digest: &str) -> &str {
    &digest[..DIGITS]
}

fn hexadecimal(document: &impl Serialize) -> String {
    let text = serde_json::to_vec(document).unwrap_or_default();
    Sha256::digest(&text)
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Returns the name of a revision: the name of its probe, the first digits of the digest, and an
/// ending if each node compiles the sources itself, because such a revision has no objects.
pub fn revision_name(probe: &str, config: &ConfigDocument, on_nodes: bool) -> String {
    let end = if on_nodes { "-source" } else { "" };
    format!("{probe}-{}{end}", short(&digest(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_named_by_what_it_configures() {
        let config = |name: Option<&str>, interface: &str| ConfigDocument {
            name: name.map(str::to_owned),
            interface: Some(interface.to_owned()),
            ..ConfigDocument::default()
        };
        let name = revision_name("flows", &config(None, "eth0"), false);
        assert_eq!(
            name,
            revision_name("flows", &config(Some("flows"), "eth0"), false)
        );
        assert_ne!(name, revision_name("flows", &config(None, "eth1"), false));
        assert_ne!(name, revision_name("flows", &config(None, "eth0"), true));
        assert_eq!(name.len(), "flows-".len() + DIGITS);
    }
}
