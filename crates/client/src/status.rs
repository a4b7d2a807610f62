//! What the daemon says about a probe, its revisions, and a configuration that was validated.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::window::Statistics;

use crate::config::document::ConfigDocument;

/// One of a few words. A daemon of a later version may use more of them.
pub type Word = Cow<'static, str>;

/// `GET /v1/probes`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeList {
    pub probes: Vec<ProbeStatus>,
}

/// `GET /v1/probes/{name}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeStatus {
    pub name: String,
    /// `running` or `failed`.
    pub state: Word,
    /// Why it is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Counts the configurations that the probe has had.
    pub revision: u64,
    /// When it was first deployed.
    pub created: String,
    pub interfaces: Vec<AttachmentStatus>,
    pub programs: BTreeMap<Direction, ProgramStatus>,
    /// The event metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventStatus>,
    /// The sums whose entries come and go with the traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<SumStatus>,
    /// Its windows on disk.
    pub windows: WindowStatus,
    pub warnings: Vec<Finding>,
    /// In lists without the sources. `None`: a later version has written it, and this one does not know all its fields.
    #[serde(deserialize_with = "if_known")]
    pub config: Option<ConfigDocument>,
}

/// The sum of a metric's windows, as it was after the last window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumStatus {
    pub direction: Direction,
    pub metric: String,
    pub entries: usize,
    pub max_entries: usize,
    /// The number of entries dropped for lack of room.
    pub dropped: u64,
}

/// Windows on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WindowStatus {
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Why the last window could not be closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One interface and hook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttachmentStatus {
    pub interface: String,
    /// `attached` or `pending`; the rest is there when it is attached.
    pub state: Word,
    /// The reason for `pending`, or what has happened to the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// `xdp` or `tc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Word>,
    /// `native` or `generic` for XDP, `tcx` or `clsact` for TC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Word>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramStatus {
    pub entry: String,
    /// Whether a metric wants snapshots, so that two copies are loaded.
    pub twins: bool,
}

/// One event metric in a probe's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventStatus {
    pub direction: Direction,
    pub metric: String,
    /// Taken out of the map for the clients that listened.
    pub delivered: u64,
    /// What the kernel had no room for; `null` where it does not count (RINGBUF).
    pub lost: Option<u64>,
    /// Events that clients did not get since they read too slowly, summed over the clients.
    pub missed: u64,
    /// Who listens now.
    pub clients: usize,
}

/// `POST /v1/validate`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ValidationReport {
    pub valid: bool,
    pub interfaces: Vec<String>,
    pub programs: BTreeMap<Direction, ProgramStatus>,
    pub metrics: BTreeMap<Direction, Vec<MetricReport>>,
    pub warnings: Vec<Finding>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetricReport {
    pub name: String,
    pub map: String,
    /// The map's type.
    #[serde(rename = "type")]
    pub kind: Word,
}

/// `GET /v1/probes/{name}/revisions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevisionList {
    pub revisions: Vec<Revision>,
}

/// A configuration that a probe has or had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    pub revision: u64,
    /// When it was deployed, RFC 3339.
    pub created: String,
    /// Whether it is the one that is deployed.
    pub current: bool,
    pub config: ConfigDocument,
}

/// The body of `POST /v1/probes/{name}/rollback`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// `None`: the configuration before the present one.
    pub revision: Option<u64>,
}

impl ProbeStatus {
    /// Removes the sources, for lists.
    #[must_use]
    pub fn without_sources(mut self) -> Self {
        let directions = self.config.iter_mut().flat_map(|config| [&mut config.ingress, &mut config.egress]);
        for direction in directions.flatten() {
            direction.source = None;
        }
        self
    }
}

fn if_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ConfigDocument>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(|config| serde_json::from_value(config).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status() -> Value {
        json!({
            "name": "flows", "state": "running", "revision": 2, "created": "2026-11-21T10:00:00Z",
            "interfaces": [
                { "interface": "eth0", "state": "attached", "ifindex": 2, "direction": "ingress", "hook": "xdp",
                  "mode": "native" },
                { "interface": "eth1", "state": "pending", "reason": "there is none" } ],
            "programs": { "ingress": { "entry": "count", "twins": true } },
            "windows": { "retained": 2, "bytes": 512, "oldest": 3, "newest": 4, "lost": 0, "damaged": 0 },
            "warnings": [],
            "config": { "interface": "eth*", "ingress": { "source": "int x;" } },
        })
    }

    #[test]
    fn a_status_is_written_as_it_is_read() {
        let read: ProbeStatus = serde_json::from_value(status()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), status());
        let without = serde_json::to_value(read.without_sources()).unwrap();
        assert_eq!(without["config"], json!({ "interface": "eth*", "ingress": {} }));
    }

    #[test]
    fn a_later_daemon_is_understood() {
        let mut later = status();
        later["config"]["labels"] = json!({ "rack": "7" });
        later["expires_at"] = "2026-11-22T10:00:00Z".into();
        let read: ProbeStatus = serde_json::from_value(later).unwrap();
        assert_eq!((read.name.as_str(), read.config), ("flows", None));
    }
}
