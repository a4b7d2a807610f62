//! `twinprobe events`.

use clap::Args;
use twinprobe_client::Client;

use crate::cli::error::CommandError;
use crate::cli::output::print::{self, PipeState};

/// Prints a line of JSON per event until the probe is deleted or replaced, or the daemon stops.
#[derive(Debug, Args)]
pub struct Events {
    /// The probe
    name: String,
    /// Only the events of this metric
    #[arg(short, long)]
    metric: Option<String>,
}

impl Events {
    pub async fn run(self, client: &Client) -> Result<(), CommandError> {
        let mut events = client.events(&self.name, self.metric.as_deref()).await?;
        while let Some(lines) = events.next().await? {
            if print::write_part(&[&lines])? == PipeState::Gone {
                break;
            }
        }
        Ok(())
    }
}
