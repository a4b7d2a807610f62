//! A daemon with one probe that has up to a million entries in a table.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use twinprobe_tests::maps::HashTable;
use twinprobe_tests::{Daemon, Namespace, Topology, http};

use crate::frame::client::Client;

const METRICS: &str = "/v1/probes/table/metrics";
/// The formats, and the start of each entry of a table in them.
pub const FORMATS: [(&str, &str, &str); 3] = [
    ("JSON", "json", "{\"key\":"),
    ("XML", "xml", "<entry>"),
    ("OpenMetrics", "openmetrics", "\ntable"),
];
const SOURCE: &str = include_str!("../../../tests/bpf/export.bpf.c");

/// The content of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Numbers,
    Flows,
}

pub struct Million {
    pub daemon: Daemon,
    pub table: HashTable,
    pub client: Client,
    content: Content,
    pub entries: u32,
    topology: Topology,
}

impl Content {
    pub const ALL: [Self; 2] = [Self::Numbers, Self::Flows];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Numbers => "u32 -> u64",
            Self::Flows => "5-tuple -> 6 fields",
        }
    }

    /// Returns the key and the value of an entry. All keys differ.
    fn entry(self, number: u32) -> (Vec<u8>, Vec<u8>) {
        // Multiplication by an odd number only changes the order of all numbers.
        let scattered = number.wrapping_mul(2_654_435_761);
        match self {
            Self::Numbers => {
                let value = u64::from(number) * 1_000_003;
                (
                    scattered.to_ne_bytes().to_vec(),
                    value.to_ne_bytes().to_vec(),
                )
            }
            Self::Flows => {
                let mut key = scattered.to_ne_bytes().to_vec();
                key.extend([198, 19, 0, 1]);
                key.extend((1024 + (number % 50_000) as u16).to_be_bytes());
                key.extend(443_u16.to_be_bytes());
                key.extend([6, 0, 0, 0]);
                let packets = u64::from(number % 10_000);
                let first = 1_000_000_000_000 + u64::from(scattered) * 1_000;
                let counters = [packets, packets * 740, first, first + packets * 1_000_003];
                let mut value = counters.map(u64::to_ne_bytes).concat();
                value.extend([1_u32, number % 2].map(u32::to_ne_bytes).concat());
                (key, value)
            }
        }
    }

    /// Returns the OpenMetrics families in which an entry has a sample.
    pub const fn families(self) -> u32 {
        match self {
            Self::Numbers => 1,
            Self::Flows => 6,
        }
    }

    /// Returns an entry in its expected rendering.
    fn json(self, number: u32) -> String {
        let (key, value) = self.entry(number);
        let field = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| value[at + i]));
        match self {
            Self::Numbers => {
                let key = number.wrapping_mul(2_654_435_761);
                format!("{{\"key\":{key},\"value\":{}}}", field(0))
            }
            Self::Flows => {
                let source = key[..4]
                    .iter()
                    .map(u8::to_string)
                    .collect::<Vec<_>>()
                    .join(".");
                let port = 1024 + number % 50_000;
                let [packets, bytes, first, last] = [0, 8, 16, 24].map(field);
                let fin = number % 2;
                format!(
                    "{{\"key\":{{\"source\":\"{source}\",\"destination\":\"198.19.0.1\",\"source_port\":{port},\
                     \"destination_port\":443,\"protocol\":6}},\"value\":{{\"packets\":{packets},\"bytes\":{bytes},\
                     \"first\":{first},\"last\":{last},\"syn\":1,\"fin\":{fin}}}}}"
                )
            }
        }
    }
}

impl Million {
    pub fn new(content: Content, entries: u32) -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let mut defines = json!({ "ENTRIES": entries.to_string() });
        if content == Content::Flows {
            defines["FLOWS"] = "1".into();
        }
        // A live metric does not change the table, so that all readings of a run have the same
        // content.
        let metrics = json!([{ "name": "table", "map": "table", "snapshot": false }]);
        let ingress = json!({ "source": SOURCE, "defines": defines, "metrics": metrics });
        daemon
            .put(
                "/v1/probes/table",
                &json!({ "interface": "mon0", "ingress": ingress }),
            )
            .expect(201);
        let table = HashTable::of_process(daemon.pid(), entries)?;
        fill(&table, content)?;
        let client = Client::new(&daemon);
        Ok(Self {
            daemon,
            table,
            client,
            content,
            entries,
            topology,
        })
    }

    /// Returns the namespace of the daemon.
    pub fn namespace(&self) -> &Namespace {
        self.topology.monitor()
    }

    /// Returns the path of the table in a format.
    pub fn path(format: &str) -> String {
        format!("{METRICS}?format={format}")
    }

    /// Reads the table once in each format: every entry is as it was written, and none is missing.
    pub fn check(&mut self) -> Result<()> {
        let mut answer = Vec::new();
        for (name, format, start) in FORMATS {
            self.client.get(&Self::path(format), &mut answer)?;
            let body = http::parse(&answer)?;
            let found = body.text().matches(start).count();
            let samples = if format == "openmetrics" {
                self.content.families()
            } else {
                1
            };
            ensure!(
                found == (samples * self.entries) as usize,
                "{name}: {found} of {} entries",
                self.entries
            );
        }
        self.client.get(&Self::path("json"), &mut answer)?;
        let body = http::parse(&answer)?;
        let (_, entries) = body
            .text()
            .split_once("\"entries\":[")
            .context("a metric")?;
        let (entries, _) = entries.rsplit_once(']').context("the end of the metric")?;
        // Inside an entry, no brace is followed by a comma and a brace.
        let mut found: Vec<&str> = entries
            .split_inclusive("},{")
            .map(|entry| entry.trim_end_matches(",{"))
            .collect();
        let first = found.first_mut().context("no entries")?;
        *first = first.strip_prefix('{').context("an entry")?;
        let expected: Vec<String> = (0..self.entries)
            .map(|number| self.content.json(number)[1..].to_owned())
            .collect();
        let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        found.sort_unstable();
        expected.sort_unstable();
        ensure!(found.len() == expected.len(), "{} entries", found.len());
        ensure!(found == expected, "entries differ from the written entries");
        Ok(())
    }
}

/// Fills a table that has the keys and values of `content`.
pub fn fill(table: &HashTable, content: Content) -> Result<()> {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (key, value) in (0..table.max_entries as u32).map(|number| content.entry(number)) {
        keys.extend(key);
        values.extend(value);
    }
    table.update(&keys, &values)
}
