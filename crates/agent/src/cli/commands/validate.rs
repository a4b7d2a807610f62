//! `twinprobe validate`.

use clap::Args;
use twinprobe_client::Client;

use super::apply::{Files, Outcomes};
use crate::cli::error::CommandError;
use crate::cli::files::ProbeFile;
use crate::cli::output::print;

#[derive(Debug, Args)]
pub struct Validate {
    #[command(flatten)]
    files: Files,
}

impl Validate {
    pub async fn run(self, client: &Client) -> Result<(), CommandError> {
        let probes = self.files.read()?;
        let mut outcomes = Outcomes::new(probes.len());
        for ProbeFile { name, mut config } in probes {
            config.name.get_or_insert_with(|| name.clone());
            match client.validate(&config).await {
                Ok(report) => {
                    print::print(format!("valid {name}").as_bytes())?;
                    print::warnings(&report.read().map(|report| report.warnings).unwrap_or_default());
                }
                Err(error) => outcomes.failed(&name, error)?,
            }
        }
        outcomes.finish()
    }
}
