//! `twinprobe get`.

use clap::Args;
use twinprobe_client::Client;

use crate::cli::error::CommandError;
use crate::cli::output::print;

#[derive(Debug, Args)]
pub struct Get {
    /// The probe
    name: String,
}

impl Get {
    pub async fn run(self, client: &Client) -> Result<(), CommandError> {
        print::json(&client.status(&self.name).await?)
    }
}
