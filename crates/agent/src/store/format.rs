//! The content of the files of probes and revisions. Each file contains the version of its format;
//! a file of a later version stays unchanged. `golden/` has a file of each version so far.

use std::io;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use twinprobe_api::parse_document;

use crate::store::error::hex;
use crate::store::record::{StoredProbe, StoredRevision};

/// The version that is written. Files without a number are of version 0, which had the same fields.
const VERSION: u64 = 1;

/// The reason why a file can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread(pub String);

/// The content of a file, and the version of its format.
#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u64,
    #[serde(flatten)]
    content: &'a T,
}

/// Returns the content of the file of a probe or of a revision.
pub fn file(content: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Versioned {
        version: VERSION,
        content,
    })?)
}

fn sender(state: &Value) -> Option<String> {
    state["pushed_by"].as_str().map(str::to_owned)
}

/// Parses a probe's file of any version up to [`VERSION`].
pub fn parse(bytes: &[u8]) -> Result<StoredProbe, Unread> {
    let unread = |what: &str, error: &dyn std::fmt::Display| {
        Unread(format!("its stored {what} can't be read: {error}"))
    };
    let mut state: Value = serde_json::from_slice(bytes).map_err(|error| unread("file", &error))?;
    check_version(&state)?;
    // Early versions stored only the configuration.
    let Some(revision) = state.get("revision").and_then(Value::as_u64) else {
        let config = parse_document(bytes).map_err(|error| unread("configuration", &error))?;
        return Ok(StoredProbe {
            revision: 0,
            created: String::new(),
            instance: Some(instance_of(bytes)),
            pushed_by: None,
            config,
            lease: None,
            running: None,
        });
    };
    let config = parse_document(state["config"].to_string().as_bytes());
    Ok(StoredProbe {
        revision,
        created: state["created"].as_str().unwrap_or_default().to_owned(),
        instance: Some(
            state["instance"]
                .as_str()
                .map_or_else(|| instance_of(bytes), str::to_owned),
        ),
        pushed_by: sender(&state),
        config: config.map_err(|error| unread("configuration", &error))?,
        lease: serde_json::from_value(state["lease"].take())
            .map_err(|error| unread("lease", &error))?,
        running: serde_json::from_value(state["running"].take())
            .map_err(|error| unread("record of the deployment that runs", &error))?,
    })
}

/// Returns the instance of a probe whose file has none, because an earlier version wrote the file.
/// The instance is then the time of the probe's creation, and the file stays unchanged until it is
/// written again with this instance.
fn instance_of(file: &[u8]) -> String {
    hex(&Sha256::digest(file)[..16])
}

/// Parses a revision's file of any version up to [`VERSION`].
pub fn parse_revision(bytes: &[u8]) -> Option<StoredRevision> {
    let state: Value = serde_json::from_slice(bytes).ok()?;
    check_version(&state).ok()?;
    let config = parse_document(state["config"].to_string().as_bytes()).ok()?;
    Some(StoredRevision {
        created: state["created"].as_str()?.to_owned(),
        pushed_by: sender(&state),
        message: state["message"].as_str().map(str::to_owned),
        config,
    })
}

fn check_version(state: &Value) -> Result<(), Unread> {
    let Some(version) = state.get("version") else {
        return Ok(());
    };
    match version.as_u64() {
        Some(0..=VERSION) => Ok(()),
        _ => Err(Unread(format!(
            "its stored file has version {version}, and this twinprobe knows versions up to {VERSION}: it was \
             written by a later twinprobe, which can read it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_api::ConfigDocument;

    use super::*;
    use crate::store::record::{StoredDeployment, StoredLease};

    fn document() -> ConfigDocument {
        let text = r#"{"interfaces":["eth0","veth*"],"priority":7,"ingress":{"hook":"xdp","verdict":"enforce",
            "source":"int x;","defines":{"N":"1"},"metrics":[{"name":"m","map":"m","snapshot":true}]},
            "window":{"interval":"10s","retain":4}}"#;
        parse_document(text.as_bytes()).unwrap()
    }

    fn stored() -> StoredProbe {
        let running = r#"{"deployment":{"boot_id":"3e25650a-34b9-4f65-8f5d-0f4a2f7e5a11","serial":12,"order":3,
            "epoch":2,"directions":[{"direction":"ingress","programs":[{"id":71,"tag":[1,2,3,4,5,6,7,8]},
            {"id":72,"tag":[1,2,3,4,5,6,7,8]}],"maps":[{"name":"m","ids":[21,22]}]}]},
            "objects":{"ingress":"2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"}}"#;
        let running: StoredDeployment = serde_json::from_str(running).unwrap();
        StoredProbe {
            revision: 5,
            created: "2026-11-21T10:00:00.000000000Z".to_owned(),
            instance: Some("6dd1a4a5a1b3f6e1c2f0d3b4a5968778".to_owned()),
            pushed_by: None,
            config: document(),
            lease: None,
            running: Some(running),
        }
    }

    fn leased() -> StoredProbe {
        let lease = StoredLease {
            granted: "2026-11-22T10:00:00.000000000Z".to_owned(),
            boot_ns: 86_400_000_000_000,
            boot_id: "3e25650a-34b9-4f65-8f5d-0f4a2f7e5a11".to_owned(),
            duration_ns: 600_000_000_000,
        };
        let config = ConfigDocument {
            expires: Some("10m".to_owned()),
            ..document()
        };
        StoredProbe {
            config,
            lease: Some(lease),
            ..stored()
        }
    }

    /// Returns a probe whose record says for which packets its programs were loaded.
    fn single() -> StoredProbe {
        let mut single = stored();
        let directions = single
            .running
            .iter_mut()
            .flat_map(|running| &mut running.deployment.directions);
        directions.for_each(|direction| direction.frags = Some(false));
        single
    }

    fn stored_revision() -> StoredRevision {
        StoredRevision {
            created: stored().created,
            pushed_by: None,
            message: None,
            config: document(),
        }
    }

    /// Files of all earlier versions must stay readable. Never change these files; only add new
    /// ones.
    #[test]
    fn files_of_every_version_are_read() {
        let of_file = |file| StoredProbe {
            instance: Some(instance_of(file)),
            ..stored()
        };
        for file in [
            &include_bytes!("golden/probe-0.json")[..],
            include_bytes!("golden/probe-1.json"),
        ] {
            assert_eq!(parse(file), Ok(of_file(file)));
        }
        assert_eq!(
            parse(include_bytes!("golden/probe-1-instance.json")),
            Ok(stored())
        );
        assert_eq!(
            parse(include_bytes!("golden/probe-1-lease.json")),
            Ok(leased())
        );
        assert_eq!(
            parse(include_bytes!("golden/probe-1-frags.json")),
            Ok(single())
        );
        for file in [
            &include_bytes!("golden/revision-0.json")[..],
            include_bytes!("golden/revision-1.json"),
        ] {
            assert_eq!(parse_revision(file), Some(stored_revision()));
        }
        let pushed_by = Some("token:ci-bot".to_owned());
        let (with_sender, revision) = (
            include_bytes!("golden/probe-1-pushed.json"),
            include_bytes!("golden/revision-1-pushed.json"),
        );
        assert_eq!(
            parse(with_sender),
            Ok(StoredProbe {
                pushed_by: pushed_by.clone(),
                ..of_file(with_sender)
            })
        );
        let pushed = StoredRevision {
            pushed_by,
            ..stored_revision()
        };
        assert_eq!(parse_revision(revision), Some(pushed.clone()));
        let message = Some("ports of the new resolver".to_owned());
        let explained = include_bytes!("golden/revision-1-message.json");
        assert_eq!(
            parse_revision(explained),
            Some(StoredRevision { message, ..pushed })
        );
    }

    #[test]
    fn what_is_written_is_the_golden_file_of_this_version() {
        fn written(content: &impl Serialize) -> Value {
            serde_json::from_slice(&file(content).unwrap()).unwrap()
        }
        let golden = |file: &[u8]| serde_json::from_slice::<Value>(file).unwrap();
        assert_eq!(
            written(&stored()),
            golden(include_bytes!("golden/probe-1-instance.json"))
        );
        assert_eq!(
            written(&leased()),
            golden(include_bytes!("golden/probe-1-lease.json"))
        );
        assert_eq!(
            written(&single()),
            golden(include_bytes!("golden/probe-1-frags.json"))
        );
        assert_eq!(
            written(&stored_revision()),
            golden(include_bytes!("golden/revision-1.json"))
        );
        let pushed_by = Some("token:ci-bot".to_owned());
        let pushed = StoredProbe {
            instance: None,
            pushed_by: pushed_by.clone(),
            ..stored()
        };
        assert_eq!(
            written(&pushed),
            golden(include_bytes!("golden/probe-1-pushed.json"))
        );
        let pushed = StoredRevision {
            pushed_by,
            ..stored_revision()
        };
        assert_eq!(
            written(&pushed),
            golden(include_bytes!("golden/revision-1-pushed.json"))
        );
        let explained = StoredRevision {
            message: Some("ports of the new resolver".to_owned()),
            ..pushed
        };
        assert_eq!(
            written(&explained),
            golden(include_bytes!("golden/revision-1-message.json"))
        );
    }
}
