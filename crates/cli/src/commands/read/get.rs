//! `twinprobe get`.

use clap::Args;
use twinprobe_client::ProbeStatus;

use crate::commands::deploy::outcome::places;
use crate::error::CommandError;
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
        let answer = session.fleet.one()?.status(&self.name).await?;
        let value = print::value(&answer)?;
        match self.output {
            View::Json | View::Yaml => self.output.show(&value, |_| String::new()),
            View::Table | View::Wide => {
                let status = answer.read()?;
                self.output.show(&value, |screen| render(&status, screen))
            }
        }
    }
}

fn render(status: &ProbeStatus, screen: Screen) -> String {
    let mut table = Table::default();
    let mut line = |title: &str, text: &str| {
        let mut row = table.row();
        row.text("PROBE", title);
        row.text(&status.name, text);
    };
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
