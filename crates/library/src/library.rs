//! The library of probes: the configurations of `probes/`, embedded in the binary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use twinprobe_api::{ConfigDocument, meant};

/// The list of the probes, which `make probes` writes.
const INDEX: &str = include_str!("../../../probes/index.json");

include!(concat!(env!("OUT_DIR"), "/probes.rs"));

/// The description of a probe of the library, as lists show it.
#[derive(Debug, Serialize, Deserialize)]
pub struct LibraryEntry {
    pub name: String,
    pub title: String,
    /// The purpose of the probe.
    pub summary: String,
    /// The possible hooks of the probe, with the default hook of its ingress first.
    pub hooks: Vec<String>,
    pub directions: Vec<String>,
    /// The columns of each metric: columns of the key, then columns of the value.
    pub fields: BTreeMap<String, Vec<String>>,
    /// The nanoseconds per packet in a trial, on the machine that the probe's README names.
    pub cost: u64,
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    #[error("the library has no probe {name:?}{meant}; `twinprobe probes` lists what it has")]
    NoSuchProbe { name: String, meant: String },
    #[error("{name} does not run at {hook}, only at {}", .hooks.join(" or "))]
    NotAtHook {
        name: String,
        hook: String,
        hooks: Vec<String>,
    },
}

/// Returns all probes of the library, in the order of their names.
pub fn index() -> Vec<LibraryEntry> {
    serde_json::from_str(INDEX).expect("a test reads the index")
}

/// Returns one probe of the library, and its README.
pub fn entry(name: &str) -> Result<(LibraryEntry, &'static str), LibraryError> {
    let found = index().into_iter().find(|entry| entry.name == name);
    let page = CONFIGURATIONS
        .iter()
        .find(|(of, ..)| *of == name)
        .map(|(.., page)| *page);
    found.zip(page).ok_or_else(|| no_such_probe(name))
}

/// Refuses a name, and lists similar names.
fn no_such_probe(name: &str) -> LibraryError {
    let meant = meant(name, CONFIGURATIONS.iter().map(|known| known.0));
    LibraryError::NoSuchProbe {
        name: name.to_owned(),
        meant,
    }
}

/// Returns the configuration of a probe of the library, with its ingress at `hook` if given.
pub fn configuration(name: &str, hook: Option<&str>) -> Result<ConfigDocument, LibraryError> {
    let entry = index().into_iter().find(|entry| entry.name == name);
    let text = CONFIGURATIONS
        .iter()
        .find(|(of, ..)| *of == name)
        .map(|(_, text, _)| text);
    let (Some(entry), Some(text)) = (entry, text) else {
        return Err(no_such_probe(name));
    };
    let mut config: ConfigDocument =
        serde_json::from_str(text).expect("a test reads the configurations");
    if let Some(hook) = hook {
        if !entry.hooks.iter().any(|has| has == hook) {
            return Err(LibraryError::NotAtHook {
                name: entry.name,
                hook: hook.to_owned(),
                hooks: entry.hooks,
            });
        }
        if let Some(ingress) = &mut config.ingress {
            ingress.hook = Some(hook.to_owned());
            // XDP alone has modes.
            ingress.mode = ingress.mode.take().filter(|_| hook == "xdp");
        }
    }
    Ok(config)
}

/// Returns the unchanged configuration of a probe of the library.
pub fn library_probe(name: &str) -> Result<ConfigDocument, LibraryError> {
    configuration(name, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_of_the_index_has_a_configuration_and_the_other_way_round() {
        let index = index();
        assert!(index.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(index.len(), CONFIGURATIONS.len());
        for entry in &index {
            let config = configuration(&entry.name, None).unwrap();
            assert_eq!(config.name.as_ref(), Some(&entry.name));
            for hook in &entry.hooks {
                let config = configuration(&entry.name, Some(hook)).unwrap();
                if let Some(ingress) = config.ingress {
                    assert_eq!(ingress.hook.as_ref(), Some(hook));
                    assert!(ingress.mode.is_none() || hook == "xdp");
                }
            }
        }
    }

    #[test]
    fn what_the_library_does_not_have_is_named() {
        let error = |name, hook| configuration(name, hook).unwrap_err().to_string();
        assert_eq!(
            error("packet", None),
            "the library has no probe \"packet\" (is it packet-counter or packet-sizes?); `twinprobe probes` lists what \
             it has"
        );
        assert_eq!(
            error("dsn", None),
            "the library has no probe \"dsn\" (is it dns?); `twinprobe probes` lists what it has"
        );
        assert_eq!(
            error("packet-counter", Some("egress")),
            "packet-counter does not run at egress, only at xdp or tc"
        );
    }
}
