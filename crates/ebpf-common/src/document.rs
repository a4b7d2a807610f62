//! The parts of a metrics document beside its metrics, and the formats of documents.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::window::Window;
use crate::window::owner::{OwnersAt, PodNames};

/// The beginning of a document, before its first metric.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// The name of the probe.
    pub probe: &'a str,
    /// The origin of the numbers; `None` for windows of earlier versions, which did not record it.
    pub origin: Option<&'a DocumentOrigin>,
    /// The names of the interfaces that the probe is attached to.
    pub interfaces: &'a [String],
    /// The reasons why the numbers differ from those on the wire; `None` if they do not.
    pub approximate: Option<&'a str>,
    /// The window that the snapshot metrics belong to, if one was closed.
    pub window: Option<&'a Window>,
    /// The outcomes of the packets; only for a window over the packets of captures.
    pub replayed: Option<&'a Replayed>,
}

/// The outcomes of the packets of captures. Each packet counts once; `truncated`, `out_of_order`,
/// `events` and `framed` count some of them a second time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The packets that a program has seen.
    pub packets: u64,
    /// The packets that are shorter than an Ethernet header.
    pub too_short: u64,
    /// The packets that are too long for a run without an interface.
    pub too_long: u64,
    /// The packets that a program for single buffers sees completely only through an extra
    /// interface, while the daemon could not make such an interface.
    pub no_interface: u64,
    /// The packets with more captured bytes than their length.
    pub wrong_length: u64,
    /// The packets of a direction without a program.
    pub other_direction: u64,
    /// The packets that were left out by chance, because the configuration asks for a sample.
    pub not_sampled: u64,
    /// The captures that end in the middle of a packet.
    pub cut_off: u64,
    /// The packets whose capture is incomplete.
    pub truncated: u64,
    /// The packets with an earlier time than a previous packet. The programs' clock does not go
    /// back.
    pub out_of_order: u64,
    /// The events from the programs, which no document contains.
    pub events: u64,
    /// The packets that got an Ethernet header because they had none, by the kind of their link.
    pub framed: PacketCounts,
    /// The packets that no program can get, by the reason: a kind of link, or a fault of the
    /// packet.
    pub skipped: PacketCounts,
}

/// Numbers of packets by their reason or kind, whose name has letters, digits and `_`.
pub type PacketCounts = BTreeMap<Cow<'static, str>, u64>;

impl Replayed {
    /// Returns the packets without an Ethernet header, and the skipped packets, each with the name
    /// of its list.
    pub fn lists(&self) -> impl Iterator<Item = (&'static str, &PacketCounts)> {
        let lists = [("framed", &self.framed), ("skipped", &self.skipped)];
        lists.into_iter().filter(|(_, counts)| !counts.is_empty())
    }

    /// Returns the numbers with their names: the number of seen packets, and all other numbers
    /// except 0.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let others = [
            ("too_short", self.too_short),
            ("too_long", self.too_long),
            ("no_interface", self.no_interface),
            ("wrong_length", self.wrong_length),
            ("other_direction", self.other_direction),
            ("not_sampled", self.not_sampled),
            ("cut_off", self.cut_off),
            ("truncated", self.truncated),
            ("out_of_order", self.out_of_order),
            ("events", self.events),
        ];
        std::iter::once(("packets", self.packets))
            .chain(others.into_iter().filter(|(_, number)| *number > 0))
    }
}

/// The origin of a document. Node, probe, instance and number identify a window among the windows
/// of all machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentOrigin {
    /// The name of the machine, as the operator has chosen it, or its host name.
    pub node: String,
    /// The id of the probe since its creation. A replacement keeps it; a new probe of the same name
    /// gets another one.
    pub instance: String,
    /// The labels of the probe's configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The facts about the machine that renderings need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The nanoseconds from the Unix epoch to the boot of the machine, which is the zero of
    /// `ktime`.
    pub boot_time_ns: i128,
    /// The names of interfaces by their index, for `ifindex`.
    pub interfaces: HashMap<u32, String>,
    /// The pods to which interfaces of the document lead, by the names of the interfaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pods: BTreeMap<String, PodNames>,
    /// The owners of addresses, whose names documents show beside keys. A stored context has none.
    #[serde(skip)]
    pub owners: Option<OwnersAt>,
}

/// A representation of a metrics document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Json,
    Xml,
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl Format {
    /// All formats, with the default of configurations first.
    pub const ALL: [Self; 4] = [Self::Json, Self::Xml, Self::OpenMetrics, Self::Prometheus];

    /// Returns the name in configurations, queries and stored windows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Xml => "xml",
            Self::OpenMetrics => "openmetrics",
            Self::Prometheus => "prometheus",
        }
    }

    /// Returns the value of `Content-Type`, parameters included.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Xml => "application/xml",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns the media type without its parameters, which can be compared with `Accept`.
    pub fn essence(self) -> &'static str {
        let media_type = self.media_type();
        media_type
            .split_once(';')
            .map_or(media_type, |(essence, _)| essence)
    }

    /// Returns the format of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_stored_by_the_names_of_configurations() {
        for format in Format::ALL {
            assert_eq!(serde_json::to_value(format).unwrap(), format.name());
            assert_eq!(Format::from_name(format.name()), Some(format));
        }
        assert_eq!(
            Format::OpenMetrics.essence(),
            "application/openmetrics-text"
        );
    }

    #[test]
    fn what_renderings_need_is_stored_to_the_last_bit() {
        let interfaces = HashMap::from([(1, "lo".to_owned()), (u32::MAX, "\u{1f980}".to_owned())]);
        for boot_time_ns in [
            0,
            1_760_000_000_123_456_789,
            i128::from(u64::MAX) + 1,
            i128::MIN,
        ] {
            let context = Context {
                boot_time_ns,
                interfaces: interfaces.clone(),
                ..Context::default()
            };
            let stored = serde_json::to_vec(&context).unwrap();
            assert_eq!(serde_json::from_slice::<Context>(&stored).unwrap(), context);
        }
    }
}
