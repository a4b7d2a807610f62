//! `twinprobe list`.

use clap::Args;
use twinprobe_api::{AttachmentStatus, ProbeStatus};
use twinprobe_ebpf_common::Direction;

use crate::error::CommandError;
use crate::fleet::answers::NodeAnswers;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::{TextRow, TextTable};
use crate::output::times;
use crate::output::units;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    view: ViewOption,
}

impl List {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let view = self.view.output;
        if let [node] = session.fleet.nodes() {
            let answer = node.client.probes().await?;
            let list = answer.read()?;
            return view.show(&print::value(&answer)?, |screen| {
                render(&[(None, &list.probes)], screen)
            });
        }
        let ask = async |node: &Node| {
            let answer = node.client.probes().await?;
            Ok((answer.json()?["probes"].take(), answer.read()?.probes))
        };
        let answers = NodeAnswers::ask(session, "probes", ask).await;
        let lists: Vec<_> = answers
            .found
            .iter()
            .map(|(node, probes)| (Some(*node), probes))
            .collect();
        view.show(&answers.values, |screen| render(&lists, screen))?;
        answers.ended()
    }
}

fn render(lists: &[(Option<&str>, &Vec<ProbeStatus>)], screen: Screen) -> String {
    let mut table = TextTable::default();
    let probes = lists
        .iter()
        .flat_map(|(node, probes)| probes.iter().map(move |probe| (node, probe)));
    for (node, probe) in probes {
        let mut row = table.row();
        if let Some(node) = node {
            row.text("NODE", node);
        }
        row.text("NAME", &probe.name);
        let waiting: Vec<&AttachmentStatus> = probe
            .interfaces
            .iter()
            .filter(|at| at.state == "pending")
            .collect();
        row.text("STATE", state(probe, waiting.len()));
        row.text(
            "INTERFACES",
            &distinct(probe, |at| Some(at.interface.clone())),
        );
        for direction in Direction::ALL {
            let hook = |at: &AttachmentStatus| {
                let words = [&at.hook, &at.mode].map(|word| word.as_deref().unwrap_or_default());
                (at.direction == Some(direction)).then(|| words.join(" ").trim().to_owned())
            };
            let hooks = distinct(probe, hook);
            row.text(
                &direction.name().to_uppercase(),
                if hooks.is_empty() { "-" } else { &hooks },
            );
        }
        row.text("CREATED", &times::short(&probe.created));
        if screen.wide {
            add_details(&mut row, probe);
        }
        if let Some(reason) = probe
            .reason
            .as_ref()
            .or_else(|| waiting.first()?.reason.as_ref())
        {
            row.text("REASON", reason);
        }
    }
    if table.is_empty() {
        "no probes\n".to_owned()
    } else {
        table.render(screen)
    }
}

/// Adds the cells that only a wide table has: the history, the cost and the windows of a probe.
fn add_details(row: &mut TextRow<'_>, probe: &ProbeStatus) {
    row.number("REVISION", &probe.revision.to_string());
    row.text("PUSHED BY", probe.pushed_by.as_deref().unwrap_or("-"));
    let tried = probe
        .cost
        .iter()
        .flat_map(|cost| cost.tried.directions.values());
    let slowest = tried
        .filter_map(|cost| Some(cost.run.as_ref()?.ns_per_packet))
        .max();
    if let Some(slowest) = slowest {
        row.amount(
            "TRIAL COST",
            slowest as f64,
            units::nanoseconds(slowest as f64),
        );
    }
    let windows = &probe.windows.statistics;
    row.number("WINDOWS", &windows.retained.to_string());
    row.amount(
        "SIZE",
        windows.bytes as f64,
        units::bytes(windows.bytes as f64),
    );
    row.number("LOST", &windows.lost.to_string());
    row.text(
        "EXPIRES",
        &probe
            .expires_at
            .as_deref()
            .map_or_else(|| "-".to_owned(), times::short),
    );
}

/// Returns the state of a probe. A probe without attachments runs, but counts nothing.
fn state(probe: &ProbeStatus, waiting: usize) -> &str {
    match waiting {
        0 => &probe.state,
        _ if probe.state != "running" => &probe.state,
        _ if waiting == probe.interfaces.len() => "waiting",
        _ => "partly attached",
    }
}

/// Collects the words of the attachments, without repetitions.
fn distinct(probe: &ProbeStatus, say: impl Fn(&AttachmentStatus) -> Option<String>) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in probe.interfaces.iter().filter_map(say) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn probe(name: &str, state: &str, interfaces: &[Value], reason: Option<&str>) -> ProbeStatus {
        let windows = json!({ "retained": 0, "bytes": 0, "oldest": null, "newest": null, "lost": 0, "damaged": 0 });
        let status = json!({
            "name": name, "state": state, "reason": reason, "interfaces": interfaces, "created": "2026-11-21T10:00:00Z",
            "revision": 1, "programs": {}, "windows": windows, "warnings": [], "config": {},
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn probes_are_listed_with_their_hooks() {
        let at = |interface, direction, hook, mode| json!({ "interface": interface, "state": "attached", "direction": direction, "hook": hook, "mode": mode });
        let interfaces = [
            at("eth0", "ingress", "xdp", "native"),
            at("eth1", "ingress", "xdp", "native"),
            at("eth0", "egress", "tc", "tcx"),
        ];
        let screen = Screen {
            width: 200,
            colour: false,
            wide: false,
        };
        let render = |probes: &Vec<ProbeStatus>| render(&[(None, probes)], screen);
        let running = vec![
            probe("flow-features", "running", &interfaces, None),
            probe("b", "running", &interfaces[..1], None),
        ];
        let at = times::short("2026-11-21T10:00:00Z");
        assert_eq!(
            render(&running),
            format!(
                "\
NAME           STATE    INTERFACES  INGRESS     EGRESS  CREATED
flow-features  running  eth0,eth1   xdp native  tc tcx  {at}
b              running  eth0        xdp native  -       {at}
"
            )
        );
        let failed = vec![probe("c", "failed", &[], Some("no eth0"))];
        let reason = format!(
            "\
NAME  STATE   INTERFACES  INGRESS  EGRESS  CREATED              REASON
c     failed              -        -       {at}  no eth0
"
        );
        assert_eq!(render(&failed), reason);
        let later =
            json!({ "interface": "eth2", "state": "pending", "reason": "there is no eth2 yet" });
        let waiting = vec![
            probe("d", "running", std::slice::from_ref(&later), None),
            probe("e", "running", &[interfaces[0].clone(), later], None),
        ];
        let text = render(&waiting);
        let expected = [("d ", "waiting "), ("e ", "partly attached ")];
        for (line, (name, state)) in text.lines().skip(1).zip(expected) {
            assert!(
                line.starts_with(name)
                    && line.contains(state)
                    && line.ends_with("  there is no eth2 yet"),
                "{text}"
            );
        }
        assert_eq!(render(&vec![]), "no probes\n");
    }
}
