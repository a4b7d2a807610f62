//! The daemon's answers about a probe, its revisions, and a configuration that was validated.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::window::WindowStatistics;
use twinprobe_ebpf_common::{Direction, MergeRule, ProbeCost};

use crate::config::document::{ConfigDocument, DirectionDocument};
use crate::config::present::Integer;

/// A word from a short list. A daemon of a later version may use more words.
pub type Word = Cow<'static, str>;

/// The answer to `GET /v1/probes`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeList {
    /// The name of the machine, if the request asks for the traffic.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The version of the daemon, if the request asks for the traffic.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The traffic so far, if the request asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<ProbeTraffic>,
    pub probes: Vec<ProbeStatus>,
}

/// The traffic at the interfaces of all probes since their creation, in both directions, each
/// interface once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeTraffic {
    /// The time of the count, RFC 3339.
    pub time: String,
    pub packets: u64,
    pub bytes: u64,
}

/// The answer to `GET /v1/probes/{name}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeStatus {
    pub name: String,
    /// `running` or `failed`.
    pub state: Word,
    /// The reason why the probe does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The name of the machine that the probe runs on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The id of the probe since its creation. Empty for a probe whose file can't be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// The labels of the configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The time when the probe is removed unless a PUT renews its lease, RFC 3339; `None` if it
    /// stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The number of the configuration. The first configuration of a probe has the number 1.
    pub revision: u64,
    /// The time when the probe was first deployed, RFC 3339.
    pub created: String,
    /// The sender of the configuration: `token:NAME`, `certificate:SAN`, `uid:NUMBER` or
    /// `anonymous`. `None` if a version that did not record senders has deployed the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_by: Option<String>,
    pub interfaces: Vec<AttachmentStatus>,
    pub programs: BTreeMap<Direction, ProgramStatus>,
    /// The maps that both directions use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_maps: Vec<SharedMapStatus>,
    /// The event metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventStatus>,
    /// The sums whose entries come and go with the traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<SumStatus>,
    /// The fields of metrics that are not added where two values become one; `None` if the probe
    /// does not run, or from a version that does not list them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<Vec<JoinStatus>>,
    /// The cost of the probe; `None` if it does not run, or if an earlier version has deployed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostStatus>,
    /// The windows of the probe on disk.
    pub windows: WindowStatus,
    pub warnings: Vec<Finding>,
    /// The configuration; in lists without the sources and objects. `None` if the request asks for
    /// no configuration, or if a later version has written it with fields that this version does
    /// not know.
    #[serde(deserialize_with = "if_known")]
    pub config: Option<ConfigDocument>,
}

/// The numbers in the values of a metric that are not added where two values become one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinStatus {
    pub direction: Direction,
    pub metric: String,
    /// The rules by path of the field; a value that is a number has an empty path.
    pub fields: BTreeMap<String, MergeRule>,
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

/// The cost of a running probe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CostStatus {
    /// The cost that a trial found before the probe was attached.
    #[serde(flatten)]
    pub tried: ProbeCost,
    /// The cost at each interface while the probe runs, if the daemon measures it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<LiveCost>,
}

/// The cost of a probe at one hook of one interface, as it was measured last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LiveCost {
    pub interface: String,
    pub direction: Direction,
    /// `xdp` or `tc`.
    pub hook: Word,
    /// The probe's share of the dispatcher's time, in nanoseconds.
    pub ns_per_packet: f64,
    /// The source of the share: `samples` or `trial`.
    pub by: Word,
    /// The nanoseconds that the dispatcher took with all of its probes.
    pub dispatcher_ns_per_packet: f64,
    /// The number of packets that the measurement has seen.
    pub packets: u64,
    /// The time of the measurement, RFC 3339.
    pub measured: String,
}

/// Windows on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WindowStatus {
    #[serde(flatten)]
    pub statistics: WindowStatistics,
    /// The reason why the last window could not be closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The last readers of windows by the metrics, since the daemon has started; the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_reads: Vec<LastRead>,
    /// The windows of the present configuration, if the request asks for them and the probe runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionWindows>,
}

/// The windows that began with the present configuration and ended since the daemon has started.
/// Acknowledged and removed ones also count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionWindows {
    pub closed: u64,
    /// The insertions into full maps in these windows, if the source counts them.
    pub failed_inserts: u64,
}

/// A reading of a probe that ended in a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRead {
    /// The reader: `token:NAME`, `certificate:SAN`, `uid:NUMBER` or `anonymous`.
    pub by: String,
    /// The time, RFC 3339.
    pub at: String,
    /// The window.
    pub seq: u64,
}

/// The state of a probe at one hook of one interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttachmentStatus {
    pub interface: String,
    /// `attached` or `pending`. An attachment that is `attached` has all fields below; `reason` is
    /// optional.
    pub state: Word,
    /// The reason for `pending`, or an event of the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// `xdp` or `tc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Word>,
    /// The mode of XDP, or the method of TC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Word>,
    /// The reason why the numbers differ from those on the wire here; `None` if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approximate: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramStatus {
    pub entry: String,
    /// True if a metric asks for snapshots, so that two copies are loaded.
    pub twins: bool,
    /// The other programs of the source or object, which no direction runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A map that both directions use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMapStatus {
    pub map: String,
    #[serde(rename = "type")]
    pub kind: Word,
    /// True if a metric of either direction asks for snapshots, so that each twin has a map.
    pub twins: bool,
}

/// One event metric in a probe's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventStatus {
    pub direction: Direction,
    pub metric: String,
    /// The interface whose events these are; `None` unless each interface has maps of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The number of events taken out of the map for the clients that listened.
    pub delivered: u64,
    /// The number of events that the kernel had no room for; `null` for maps where the kernel does
    /// not count (RINGBUF).
    pub lost: Option<u64>,
    /// The number of events that slow clients did not get, summed over the clients.
    pub missed: u64,
    /// The number of clients that listen now.
    pub clients: usize,
}

/// The answer to `POST /v1/validate`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ValidationReport {
    pub valid: bool,
    pub interfaces: Vec<String>,
    pub programs: BTreeMap<Direction, ProgramStatus>,
    /// The maps that both directions use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_maps: Vec<SharedMapStatus>,
    pub metrics: BTreeMap<Direction, Vec<MetricReport>>,
    /// The maps and variables of each program that metrics can read.
    #[serde(default)]
    pub maps: BTreeMap<Direction, Vec<MapReport>>,
    #[serde(default)]
    pub cost: ProbeCost,
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

/// A map or a variable of a program that a metric can read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapReport {
    /// The name, as `map` of a metric has it.
    pub map: String,
    #[serde(rename = "type")]
    pub kind: Word,
    /// 1 for a variable; the bytes of a RINGBUF.
    pub max_entries: u32,
    /// True if the program adds entries by their keys, or may do so.
    pub adds: bool,
    /// True if the program deletes entries, or may do so.
    pub deletes: bool,
}

/// The answer to `GET /v1/probes/{name}/revisions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevisionList {
    pub revisions: Vec<Revision>,
}

/// The present or an earlier configuration of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    pub revision: u64,
    /// The time when the configuration was deployed, RFC 3339.
    pub created: String,
    /// The sender of the configuration, as in [`ProbeStatus`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_by: Option<String>,
    /// The sender's reason for the configuration, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// True for the configuration that is deployed.
    pub current: bool,
    pub config: ConfigDocument,
}

/// The body of `POST /v1/probes/{name}/rollback`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The revision to deploy again; `None` for the one before the present one.
    #[serde(default, deserialize_with = "integer_or_null")]
    pub revision: Option<u64>,
}

fn integer_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Integer<u64>>::deserialize(deserializer)?.map(|integer| integer.0))
}

impl ProbeStatus {
    /// Removes the sources and the entries of maps, which may be large, for lists.
    #[must_use]
    pub fn without_sources(mut self) -> Self {
        for direction in self.directions_mut() {
            (direction.source, direction.object, direction.files) = (None, None, None);
        }
        self.config.iter_mut().for_each(|config| config.fill = None);
        self
    }

    /// Removes the parts that only clients who may push probes may see: sources, entries of maps,
    /// and definitions, which may be secrets.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        for direction in self.directions_mut() {
            direction.defines = None;
        }
        self.without_sources()
    }

    fn directions_mut(&mut self) -> impl Iterator<Item = &mut DirectionDocument> {
        let directions = self
            .config
            .iter_mut()
            .flat_map(|config| [&mut config.ingress, &mut config.egress]);
        directions.flatten()
    }
}

fn if_known<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ConfigDocument>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(|config| serde_json::from_value(config).ok())
}

#[cfg(test)]
mod tests;
