//! `twinprobe apply` and `twinprobe validate`.

use clap::Args;
use twinprobe_client::{Client, StatusCode};

use crate::commands::deploy::files::DeployFiles;
use crate::commands::deploy::outcome::{self, Done};
use crate::commands::deploy::send::send;
use crate::commands::deploy::undo;
use crate::error::CommandError;
use crate::files::files::ProbeFile;
use crate::fleet::session::Session;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct Apply {
    #[command(flatten)]
    files: DeployFiles,
    /// Reason for the change, which `revisions` shows
    #[arg(short, long, value_name = "WHY")]
    message: Option<String>,
    /// If a probe is refused or a daemon fails, undo the changes on all daemons
    #[arg(long)]
    rollback_on_failure: bool,
    #[command(flatten)]
    view: ViewOption,
}

#[derive(Debug, Args)]
pub struct Validate {
    #[command(flatten)]
    files: DeployFiles,
    #[command(flatten)]
    view: ViewOption,
}

impl Apply {
    pub async fn run(&self, session: &Session) -> Result<(), CommandError> {
        let probes = self.files.read()?;
        let before = match self.rollback_on_failure {
            true => undo::revisions(session, &probes).await,
            false => Vec::new(),
        };
        let put = async |client: &Client, probe: &ProbeFile| {
            let answer = client
                .put(&probe.name, &probe.config, self.message.as_deref())
                .await?;
            let verb = match answer.status {
                StatusCode::CREATED => "created",
                _ if answer.is_unchanged => "unchanged",
                _ => "replaced",
            };
            let status = answer.read().ok();
            let done = Done {
                verb,
                places: status.as_ref().map(outcome::places).unwrap_or_default(),
                warnings: status.map(|status| status.warnings).unwrap_or_default(),
                ns_per_packet: None,
                answer: outcome::content(&answer),
            };
            Ok(done)
        };
        let sent = send(session, &probes, self.view.output, put).await;
        if self.rollback_on_failure {
            undo::on_failure(session, &probes, &sent, &before).await;
        }
        outcome::failure(&sent?, session.fleet.nodes().len())
    }
}

impl Validate {
    pub async fn run(&self, session: &Session) -> Result<(), CommandError> {
        let probes = self.files.read()?;
        let validate = async |client: &Client, probe: &ProbeFile| {
            let mut config = probe.config.clone();
            config.name.get_or_insert_with(|| probe.name.clone());
            let answer = client.validate(&config).await?;
            let report = answer.read().ok();
            let cost = report
                .as_ref()
                .map(|report| report.cost.directions.values());
            let times = cost
                .into_iter()
                .flatten()
                .filter_map(|cost| Some(cost.run.as_ref()?.ns_per_packet));
            let done = Done {
                verb: "valid",
                places: report
                    .as_ref()
                    .map(|report| report.interfaces.join(", "))
                    .unwrap_or_default(),
                ns_per_packet: times.max(),
                warnings: report.map(|report| report.warnings).unwrap_or_default(),
                answer: outcome::content(&answer),
            };
            Ok(done)
        };
        let sent = send(session, &probes, self.view.output, validate).await?;
        outcome::failure(&sent, session.fleet.nodes().len())
    }
}
