//! `twinprobe history`.

use clap::Args;
use serde_json::Value;
use twinprobe_api::HistoryEntry;
use twinprobe_ebpf_common::ProbeCost;

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct History {
    /// The probe, also one that was deleted; without a name, all probes
    name: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

impl History {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let answer = session.fleet.one()?.history(self.name.as_deref()).await?;
        let list = answer.read()?;
        let of_all = self.name.is_none();
        self.view.output.show(&print::value(&answer)?, |screen| render(&list.history, of_all, screen))
    }
}

/// Renders the changes, the newest first.
fn render(history: &[HistoryEntry], of_all: bool, screen: Screen) -> String {
    let mut table = TextTable::default();
    for entry in history.iter().rev() {
        let mut row = table.row();
        row.text("TIME", &times::short(&entry.time));
        if of_all {
            row.text("PROBE", &entry.probe);
        }
        row.text("CHANGE", entry.change.name());
        row.number("REVISION", &entry.revision.to_string());
        row.text("BY", entry.who.as_deref().unwrap_or("-"));
        row.text("FROM", &origin(entry.from.as_ref()));
        row.text("NS/PACKET", &costs(entry));
        row.text("WHY", entry.message.as_deref().unwrap_or_default());
    }
    table.render(screen)
}

/// Returns the address, the process or the file that a change came from.
fn origin(from: Option<&Value>) -> String {
    let text = |name: &str| from.and_then(|from| from[name].as_str());
    let process = from.and_then(|from| from["pid"].as_i64());
    match (text("address").or_else(|| text("file")), process) {
        (Some(place), _) => place.to_owned(),
        (None, Some(pid)) => format!("pid {pid}"),
        (None, None) => "-".to_owned(),
    }
}

/// Returns the cost per packet before and after a change, of all directions together.
fn costs(entry: &HistoryEntry) -> String {
    let all = |cost: Option<&ProbeCost>| {
        let runs: Vec<u64> = cost?
            .directions
            .values()
            .filter_map(|direction| Some(direction.run.as_ref()?.ns_per_packet))
            .collect();
        (!runs.is_empty()).then(|| runs.iter().sum::<u64>().to_string())
    };
    match (all(entry.cost_before.as_ref()), all(entry.cost_after.as_ref())) {
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (None, Some(after)) => format!("-> {after}"),
        (Some(before), None) => format!("{before} ->"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_change_comes_first() {
        let list = r#"[
            {"time":"2026-11-21T10:00:00.5Z","probe":"dns","change":"created","revision":1,"instance":"4f","who":"token:ci",
             "from":{"address":"192.0.2.1:4000","tls":true},"message":"first",
             "cost_after":{"map_bytes":1,"directions":{"ingress":{"ns_per_packet":30,"noise_ns":1,"frame":"x",
                 "instructions":1,"verified":1,"stack_bytes":8}}}},
            {"time":"2026-11-21T11:00:00Z","probe":"dns","change":"expired","revision":1,"instance":"4f",
             "cost_before":{"map_bytes":1,"directions":{"ingress":{"ns_per_packet":30,"noise_ns":1,"frame":"x",
                 "instructions":1,"verified":1,"stack_bytes":8}}}},
            {"time":"2026-11-21T12:00:00Z","probe":"dns","change":"removed","revision":1,"instance":"50","who":"uid:0",
             "from":{"uid":0,"gid":0,"pid":77}}]"#;
        let list: Vec<HistoryEntry> = serde_json::from_str(list).unwrap();
        let screen = Screen { width: 120, colour: false, wide: false };
        assert_eq!(
            render(&list, false, screen),
            format!(
                "\
TIME                 CHANGE   REVISION  BY        FROM            NS/PACKET  WHY
{}  removed         1  uid:0     pid 77
{}  expired         1  -         -               30 ->
{}  created         1  token:ci  192.0.2.1:4000  -> 30      first
",
                times::short("2026-11-21T12:00:00Z"),
                times::short("2026-11-21T11:00:00Z"),
                times::short("2026-11-21T10:00:00Z")
            )
        );
        assert!(render(&list, true, screen).contains("PROBE"));
    }
}
