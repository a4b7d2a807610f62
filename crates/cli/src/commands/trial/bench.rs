//! `twinprobe bench`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use twinprobe_api::{ConfigDocument, DirectionDocument};
use twinprobe_client::{Captures, Client};

use crate::commands::trial::choice::TrialChoice;
use crate::error::CommandError;
use crate::files::files::ProbeFile;
use crate::files::sources::Sources;
use crate::fleet::session::Session;
use crate::output::progress::ProgressLine;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::units;
use crate::output::view::ViewOption;

/// A program that does nothing: its time is the cost of the call.
const NOTHING: &str = "#include <twinprobe.h>\nTP_ARRAY(none, __u64, 1);\nTP_PROBE(nothing, packet)\n{\n\treturn \
    TP_PASS;\n}\nchar LICENSE[] SEC(\"license\") = \"Dual BSD/GPL\";\n";
const JSON: &str = "application/json";

/// Measures the time of a probe for the packets of a capture. The probe runs already, or it is in a
/// file or in the library. A copy with maps of its own sees the packets, so that the counts of the
/// probe do not change. Caches are warm: the packets come one after the other, and nothing else
/// runs between them.
#[derive(Debug, Args)]
pub struct Bench {
    /// A probe that runs
    #[arg(value_name = "NAME", conflicts_with_all = ["file", "probe"])]
    name: Option<String>,
    #[command(flatten)]
    choice: TrialChoice,
    /// Packets in pcap, pcapng or snoop, perhaps compressed by gzip or zstd
    #[arg(long, value_name = "FILE")]
    pcap: PathBuf,
    /// Number of runs; the result is the fastest one
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    #[command(flatten)]
    view: ViewOption,
}

/// The fastest of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fastest {
    packets: u64,
    ran: Duration,
}

impl Fastest {
    fn ns_per_packet(self) -> f64 {
        self.ran.as_nanos() as f64 / self.packets.max(1) as f64
    }
}

impl Bench {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        let ProbeFile { name, config, .. } = self.probe(client).await?;
        let progress = ProgressLine::steps(2 * self.runs as usize);
        let probe = self.fastest(client, &config, &progress).await?;
        let nothing = self.fastest(client, &empty(&config), &progress).await?;
        drop(progress);
        let cost = (probe.ns_per_packet() - nothing.ns_per_packet()).max(0.0);
        let value = json!({ "name": name, "packets": probe.packets, "runs": self.runs, "ns_per_packet": tenths(cost),
            "handing_over_ns_per_packet": tenths(nothing.ns_per_packet()) });
        self.view
            .output
            .show(&value, |screen| render(&name, probe, cost, screen))
    }

    /// Returns the configuration that is measured.
    async fn probe(&self, client: &Client) -> Result<ProbeFile, CommandError> {
        if let Some(probe) = self.choice.read()? {
            return Ok(probe);
        }
        let name = self.name.as_ref().ok_or(CommandError::NoProbe)?;
        let status = client.status(name).await?.read()?;
        let config = status.config.ok_or(CommandError::NoSources)?;
        let has_code = |direction: &DirectionDocument| {
            direction.source.is_some() || direction.object.is_some()
        };
        if ![&config.ingress, &config.egress]
            .into_iter()
            .flatten()
            .all(has_code)
        {
            return Err(CommandError::NoSources);
        }
        let mut probe = [ProbeFile::new(name.clone(), config)];
        self.choice.change(&mut probe)?;
        let [probe] = probe;
        Ok(probe)
    }

    async fn fastest(
        &self,
        client: &Client,
        config: &ConfigDocument,
        progress: &ProgressLine,
    ) -> Result<Fastest, CommandError> {
        progress.at(format!("replaying {}", file_name(&self.pcap)));
        let mut fastest: Option<Fastest> = None;
        for _ in 0..self.runs {
            let captures = Captures {
                capture: Some(self.pcap.clone()),
                ..Captures::default()
            };
            let answer = client.replay(config, &captures, JSON).await;
            let answer = answer.map_err(|error| CommandError::Probe {
                error,
                sources: Box::new(Sources::inside(config)),
            })?;
            let document: Value = answer.read()?;
            let packets = document["replayed"]["packets"].as_u64().unwrap_or_default();
            let ran = answer.ran.ok_or(CommandError::NoTiming)?;
            let run = Fastest { packets, ran };
            if fastest.is_none_or(|fastest| run.ran < fastest.ran) {
                fastest = Some(run);
            }
            progress.done();
        }
        match fastest {
            Some(Fastest { packets: 0, .. }) | None => Err(CommandError::NoPackets {
                path: self.pcap.clone(),
            }),
            Some(fastest) => Ok(fastest),
        }
    }
}

/// Returns the configuration with programs that do nothing.
fn empty(config: &ConfigDocument) -> ConfigDocument {
    let mut empty = ConfigDocument {
        name: Some("nothing".to_owned()),
        ..ConfigDocument::default()
    };
    empty.interface = Some("lo".to_owned());
    for (from, to) in [
        (&config.ingress, &mut empty.ingress),
        (&config.egress, &mut empty.egress),
    ] {
        *to = from.as_ref().map(|from| DirectionDocument {
            hook: from.hook.clone(),
            sample: from.sample,
            source: Some(NOTHING.to_owned()),
            ..Default::default()
        });
    }
    empty
}

fn render(name: &str, probe: Fastest, cost: f64, screen: Screen) -> String {
    let mut table = TextTable::default();
    let mut row = table.row();
    row.text("PROBE", name);
    row.number("PACKETS", &probe.packets.to_string());
    row.amount("BENCH COST/PACKET", cost, units::nanoseconds(cost));
    // Less than a nanosecond is noise.
    if cost >= 1.0 {
        row.amount(
            "AT MOST",
            1e9 / cost,
            format!("{}/s per CPU", units::count(1e9 / cost)),
        );
    }
    table.render(screen)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn tenths(number: f64) -> f64 {
    (10.0 * number).round() / 10.0
}
