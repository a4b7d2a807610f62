//! `twinprobe replay`.

use std::path::PathBuf;

use clap::Args;
use twinprobe_client::{Captures, Client};

use crate::error::CommandError;
use crate::files::{self, ProbeFile};
use crate::output::format::OutputFormat;
use crate::output::print;

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
    pub async fn run(self, client: &Client) -> Result<(), CommandError> {
        let mut probes = files::read(&self.file)?;
        let ProbeFile { name, mut config } = match probes.len() {
            1 => probes.remove(0),
            total => return Err(CommandError::OneProbe { path: self.file, total }),
        };
        config.name.get_or_insert(name);
        let captures = Captures { capture: self.capture, egress_capture: self.egress_capture };
        let document = client.replay(&config, &captures, self.output.media_type()).await?;
        print::print(self.output.show(&document)?)
    }
}
