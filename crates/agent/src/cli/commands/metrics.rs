//! `twinprobe metrics`.

use clap::Args;
use twinprobe_client::Client;

use crate::cli::error::CommandError;
use crate::cli::output::format::OutputFormat;
use crate::cli::output::print;

#[derive(Debug, Args)]
pub struct Metrics {
    /// The probe
    name: String,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

impl Metrics {
    pub async fn run(self, client: &Client) -> Result<(), CommandError> {
        let document = client.metrics(&self.name, self.output.media_type()).await?;
        Ok(print::print(&self.output.show(&document)?)?)
    }
}
