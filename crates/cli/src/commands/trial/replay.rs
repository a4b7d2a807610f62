//! `twinprobe test`, also called `replay`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::Value;
use twinprobe_client::Captures;

use crate::commands::read::picture::Picture;
use crate::commands::trial::choice::TrialChoice;
use crate::error::CommandError;
use crate::files::files::ProbeFile;
use crate::fleet::session::Session;
use crate::output::format::OutputFormat;
use crate::output::print;
use crate::output::progress::ProgressLine;

#[derive(Debug, Args)]
pub struct ReplayCommand {
    #[command(flatten)]
    choice: TrialChoice,
    /// Packets in pcap, pcapng or snoop, perhaps compressed by gzip or zstd. If neither the file
    /// nor --local gives the direction of a packet, the ingress sees it; if the probe has only an
    /// egress, the egress
    #[arg(value_name = "CAPTURE", required_unless_present = "egress_capture")]
    capture: Option<PathBuf>,
    /// Packets of the egress
    #[arg(long, value_name = "FILE")]
    egress_capture: Option<PathBuf>,
    /// Address (IPv4, IPv6, Ethernet) of the host where the packets were captured: the egress sees
    /// the packets that it sends, the ingress those that it receives
    #[arg(long, value_name = "ADDRESS")]
    local: Vec<String>,
    /// Format of the metrics
    #[arg(short, long, value_enum, default_value_t = OutputFormat::TABLE)]
    output: OutputFormat,
}

impl ReplayCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        let ProbeFile {
            config, sources, ..
        } = self.choice.read()?.ok_or(CommandError::NoChoice)?;
        let captures = Captures {
            capture: self.capture,
            egress_capture: self.egress_capture,
            local: self.local,
            ..Captures::default()
        };
        let progress = ProgressLine::upload(captures.bytes(), Arc::clone(&captures.sent));
        progress.at(format!(
            "replaying to {}",
            config.name.as_deref().unwrap_or_default()
        ));
        let document = client
            .replay(&config, &captures, self.output.media_type())
            .await;
        drop(progress);
        let document = document.map_err(|error| CommandError::Probe {
            error,
            sources: Box::new(sources),
        })?;
        if self.output.is_table() {
            let document: Value = document.read()?;
            notes(&document["replayed"])
                .iter()
                .for_each(|note| print::complain(note));
            let (picture, screen) = (Picture::default(), self.output.screen());
            return print::print(
                picture
                    .draw(client, &document, Some(&config), None, screen)
                    .await?,
            );
        }
        print::print(self.output.show(&document)?)
    }
}

/// Returns a line for each list of packets that were changed or skipped.
fn notes(replayed: &Value) -> Vec<String> {
    let words = [
        ("framed", "got an Ethernet header"),
        ("skipped", "were skipped"),
    ];
    let list = |(name, words): (&str, &str)| {
        let counts = replayed.get(name)?.as_object()?;
        let counts: Vec<String> = counts
            .iter()
            .map(|(of, count)| format!("{of} {count}"))
            .collect();
        Some(format!("note: packets that {words}: {}", counts.join(", ")))
    };
    words.into_iter().filter_map(list).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn skipped_packets_are_told() {
        let replayed = json!({ "packets": 9, "cut_off": 1, "framed": { "RAW": 2 },
            "skipped": { "LINKTYPE_147": 3, "encrypted": 1 } });
        let expected = [
            "note: packets that got an Ethernet header: RAW 2",
            "note: packets that were skipped: LINKTYPE_147 3, encrypted 1",
        ];
        assert_eq!(notes(&replayed), expected);
        assert!(notes(&json!({ "packets": 9, "cut_off": 1 })).is_empty());
    }
}
