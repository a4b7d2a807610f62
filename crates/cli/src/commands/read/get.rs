//! `twinprobe get`.

use clap::Args;
use twinprobe_api::{LiveCost, ProbeStatus};

use crate::commands::deploy::outcome::places;
use crate::error::CommandError;
use crate::fleet::answers::NodeAnswers;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::{Screen, can_redraw};
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::units;
use crate::output::view::OutputView;

/// The number of packets of a measurement below which their cost says little.
const FEW: u64 = 100;

#[derive(Debug, Args)]
pub struct Get {
    /// The probe
    name: String,
    /// Form of the output [default: table on a terminal, else json]
    #[arg(short, long, value_enum)]
    output: Option<OutputView>,
}

impl Get {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let [Node { client, .. }] = session.fleet.nodes() else {
            return self.everywhere(session).await;
        };
        let answer = client.status(&self.name).await?;
        let value = print::value(&answer)?;
        let view = self.view();
        match view {
            OutputView::Json | OutputView::Yaml => view.show(&value, |_| String::new()),
            OutputView::Table | OutputView::Wide => {
                let status = answer.read()?;
                view.show(&value, |screen| render(None, &status, screen))
            }
        }
    }

    /// Returns the chosen form. The default is a table on a terminal, and JSON elsewhere.
    fn view(&self) -> OutputView {
        let by_default = if can_redraw() {
            OutputView::Table
        } else {
            OutputView::Json
        };
        self.output.unwrap_or(by_default)
    }

    /// Shows the probe of each daemon, one after the other. Fails if one daemon failed.
    async fn everywhere(self, session: &Session) -> Result<(), CommandError> {
        let ask = async |node: &Node| {
            let answer = node.client.status(&self.name).await?;
            Ok((answer.json()?, answer.read()?))
        };
        let answers = NodeAnswers::ask(session, "probe", ask).await;
        self.view().show(&answers.values, |screen| {
            let tables = answers
                .found
                .iter()
                .map(|(node, status)| render(Some(node), status, screen));
            tables.collect::<Vec<_>>().join("\n")
        })?;
        answers.ended()
    }
}

fn render(node: Option<&str>, status: &ProbeStatus, screen: Screen) -> String {
    let mut table = TextTable::default();
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
    line("created", &times::short(&status.created));
    if let Some(by) = &status.pushed_by {
        line("pushed by", by);
    }
    if let Some(at) = &status.expires_at {
        line("expires", &times::short(at));
    }
    for (direction, cost) in status.cost.iter().flat_map(|cost| &cost.tried.directions) {
        if let Some(run) = &cost.run {
            let frame = run.frame.replace('_', " ");
            let words = format!(
                "{} ns per packet (sample packet {frame}, caches warm)",
                run.ns_per_packet
            );
            line(&format!("trial cost, {direction}"), &words);
        }
    }
    for live in status.cost.iter().flat_map(|cost| &cost.live) {
        let at = format!("live cost, {} {}", live.interface, live.direction);
        line(&at, &live_words(live));
    }
    let windows = &status.windows.statistics;
    let size = units::bytes(windows.bytes as f64);
    line(
        "windows",
        &format!(
            "{} retained ({size}), {} lost",
            windows.retained, windows.lost
        ),
    );
    if let Some(error) = &status.windows.error {
        line("error", error);
    }
    table.render(screen)
}

/// Says what a packet costs, and how good the number is.
fn live_words(live: &LiveCost) -> String {
    let LiveCost {
        ns_per_packet,
        packets,
        by,
        measured,
        ..
    } = live;
    let measured = times::short(measured);
    if *packets == 0 {
        return format!("unknown: no packets came while it was measured, {measured}");
    }
    let share = if by == "trial" {
        ", shared among the probes by their trials"
    } else {
        ""
    };
    if *packets < FEW {
        return format!(
            "about {ns_per_packet:.0} ns per packet, of {packets} alone: caches are cold, more packets cost less{share}, {measured}"
        );
    }
    format!("{ns_per_packet:.1} ns per packet, of {packets}{share}, {measured}")
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::Direction;

    use super::*;

    #[test]
    fn a_cost_of_few_packets_says_so() {
        let words = |packets, by: &'static str| {
            live_words(&LiveCost {
                interface: "eth0".to_owned(),
                direction: Direction::Ingress,
                hook: "tc".into(),
                ns_per_packet: 5216.0,
                by: by.into(),
                dispatcher_ns_per_packet: 6000.0,
                packets,
                measured: "2026-11-29T18:00:00Z".to_owned(),
            })
        };
        assert!(
            words(0, "trial").starts_with("unknown: no packets came"),
            "{}",
            words(0, "trial")
        );
        assert!(
            words(7, "trial").starts_with("about 5216 ns per packet, of 7 alone: caches are cold")
        );
        assert!(words(7, "trial").contains("by their trials"));
        assert!(words(4000, "samples").starts_with("5216.0 ns per packet, of 4000, "));
    }
}
