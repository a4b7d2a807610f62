//! `twinprobe test`, also called `replay`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use twinprobe_client::Captures;

use crate::error::CommandError;
use crate::files::files::{self, ProbeFile};
use crate::fleet::session::Session;
use crate::output::format::OutputFormat;
use crate::output::print;
use crate::output::progress::Progress;

#[derive(Debug, Args)]
pub struct Replay {
    /// JSON or YAML with one configuration; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Packets in pcap or pcapng: those of the ingress; for a probe that has only an egress, those of the egress
    #[arg(value_name = "CAPTURE", required_unless_present = "egress_capture")]
    capture: Option<PathBuf>,
    /// Packets of the egress
    #[arg(long, value_name = "FILE")]
    egress_capture: Option<PathBuf>,
    /// Format of the metrics
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

impl Replay {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        let mut probes = files::read(&self.file)?;
        let ProbeFile { name, mut config, sources } = match probes.len() {
            1 => probes.remove(0),
            total => return Err(CommandError::OneProbe { path: self.file, total }),
        };
        config.name.get_or_insert(name);
        let captures =
            Captures { capture: self.capture, egress_capture: self.egress_capture, ..Captures::default() };
        let progress = Progress::upload(captures.bytes(), Arc::clone(&captures.sent));
        progress.at(format!("replaying to {}", config.name.as_deref().unwrap_or_default()));
        let document = client.replay(&config, &captures, self.output.media_type()).await;
        drop(progress);
        let document = document.map_err(|error| CommandError::Probe { error, sources: Box::new(sources) })?;
        print::print(self.output.show(&document)?)
    }
}
