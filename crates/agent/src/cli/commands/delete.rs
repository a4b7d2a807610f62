//! `twinprobe delete`.

use clap::Args;
use twinprobe_client::Client;

use crate::cli::error::CommandError;
use crate::cli::output::print;

#[derive(Debug, Args)]
pub struct Delete {
    /// The probe
    name: String,
}

impl Delete {
    pub async fn run(self, client: &Client) -> Result<(), CommandError> {
        client.delete(&self.name).await?;
        Ok(print::print(format!("deleted {}", self.name).as_bytes())?)
    }
}
