//! `twinprobe get`.

use clap::Args;
use serde_json::json;
use twinprobe_client::{ClientError, ProbeStatus};
use twinprobe_ebpf_common::finding::with_causes;

use crate::commands::deploy::outcome::places;
use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::Table;
use crate::output::units;
use crate::output::view::View;

#[derive(Debug, Args)]
pub struct Get {
    /// The probe
    name: String,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = View::Json)]
    output: View,
}

impl Get {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let [Node { client, .. }] = session.fleet.nodes() else { return self.everywhere(session).await };
        let answer = client.status(&self.name).await?;
        let value = print::value(&answer)?;
        match self.output {
            View::Json | View::Yaml => self.output.show(&value, |_| String::new()),
            View::Table | View::Wide => {
                let status = answer.read()?;
                self.output.show(&value, |screen| render(None, &status, screen))
            }
        }
    }

    /// Shows the probe of each daemon, one after the other. Fails if one daemon failed.
    async fn everywhere(self, session: &Session) -> Result<(), CommandError> {
        let ask = async |node: &Node| {
            let answer = node.client.status(&self.name).await?;
            Ok::<_, ClientError>((answer.json()?, answer.read()?))
        };
        let (mut values, mut found, mut failed) = (Vec::new(), Vec::new(), 0);
        for (node, answer) in session.fleet.nodes().iter().zip(session.fleet.each(ask).await) {
            match answer {
                Ok((value, status)) => {
                    values.push(json!({ "server": node.name, "probe": value }));
                    found.push((node.name.as_str(), status));
                }
                Err(error) => {
                    print::complain(&format!("{}: {}", node.name, with_causes(&error)));
                    values.push(json!({ "server": node.name, "error": with_causes(&error) }));
                    failed += 1;
                }
            }
        }
        self.output.show(&values, |screen| {
            let tables = found.iter().map(|(node, status)| render(Some(node), status, screen));
            tables.collect::<Vec<_>>().join("\n")
        })?;
        let total = session.fleet.nodes().len();
        if failed == 0 { Ok(()) } else { Err(CommandError::Nodes { failed, total }) }
    }
}

fn render(node: Option<&str>, status: &ProbeStatus, screen: Screen) -> String {
    let mut table = Table::default();
    let mut line = |title: &str, text: &str| {
        let mut row = table.row();
        row.text("PROBE", title);
        row.text(&status.name, text);
    };
    if let Some(node) = node {
        line("node", node);
    }
    line("state", &status.state);
    if let Some(reason) = &status.reason {
        line("reason", reason);
    }
    line("on", &places(status));
    line("revision", &status.revision.to_string());
    line("created", &status.created);
    for (title, value) in [("pushed by", &status.pushed_by), ("expires", &status.expires_at)] {
        if let Some(value) = value {
            line(title, value);
        }
    }
    for (direction, cost) in status.cost.iter().flat_map(|cost| &cost.tried.directions) {
        if let Some(run) = &cost.run {
            line(&format!("{direction} cost"), &format!("{} ns per packet in a trial", run.ns_per_packet));
        }
    }
    for live in status.cost.iter().flat_map(|cost| &cost.live) {
        let at = format!("{} {} cost", live.interface, live.direction);
        line(&at, &format!("{:.1} ns per packet, measured {}", live.ns_per_packet, live.measured));
    }
    let windows = &status.windows.statistics;
    let size = units::bytes(windows.bytes as f64);
    line("windows", &format!("{} retained ({size}), {} lost", windows.retained, windows.lost));
    if let Some(error) = &status.windows.error {
        line("trouble", error);
    }
    table.render(screen)
}
