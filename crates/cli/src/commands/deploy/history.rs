//! `twinprobe history`.

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use twinprobe_api::HistoryEntry;
use twinprobe_ebpf_common::ProbeCost;

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::moment;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct History {
    /// The probe, also one that was deleted; without a name, all probes
    name: Option<String>,
    /// Show only changes from this time on: `yesterday 14:00`, `2026-11-21 10:00` or 10:00 by the
    /// clock of this machine, 2026-11-21T10:00:00Z, or -1h for an hour ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::begin)]
    from: Option<Timestamp>,
    /// Show only changes before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::end)]
    to: Option<Timestamp>,
    #[command(flatten)]
    view: ViewOption,
}

impl History {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let answer = session.fleet.one()?.history(self.name.as_deref()).await?;
        let (mut list, mut value) = (answer.read()?, print::value(&answer)?);
        let of_all = self.name.is_none();
        list.history.retain(|entry| self.is_inside(&entry.time));
        if let Some(history) = value["history"].as_array_mut() {
            history.retain(|entry| {
                entry["time"]
                    .as_str()
                    .is_none_or(|time| self.is_inside(time))
            });
        }
        self.view
            .output
            .show(&value, |screen| render(&list.history, of_all, screen))
    }

    /// Tells whether a change belongs to the requested time. A change with an unreadable time
    /// always does.
    fn is_inside(&self, time: &str) -> bool {
        let Ok(time) = time.parse::<Timestamp>() else {
            return true;
        };
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to)
    }
}

/// Renders the changes, the newest first.
fn render(history: &[HistoryEntry], of_all: bool, screen: Screen) -> String {
    let mut table = TextTable::with_spare(&["NS/PACKET", "REVISION"]);
    for entry in history.iter().rev() {
        let mut row = table.row();
        row.text("TIME", &times::short(&entry.time));
        if of_all {
            row.text("PROBE", &entry.probe);
        }
        row.text("CHANGE", entry.change.name());
        row.number("REVISION", &entry.revision.to_string());
        row.text("BY", &author(entry));
        row.text("FROM", &origin(entry.from.as_ref()));
        row.text("NS/PACKET", &costs(entry));
        row.text("WHY", entry.message.as_deref().unwrap_or_default());
    }
    if table.is_empty() {
        "no changes\n".to_owned()
    } else {
        table.render(screen)
    }
}

/// Returns the sender of a change, and the user that has logged in: all users of `sudo` are
/// `uid:0`.
fn author(entry: &HistoryEntry) -> String {
    let who = entry.who.as_deref().unwrap_or("-");
    match entry.from.as_ref().and_then(|from| from["login"].as_str()) {
        Some(login) => format!("{who} ({login})"),
        None => who.to_owned(),
    }
}

/// Returns the author of a change: an address, a file, or the local user with the program.
fn origin(from: Option<&Value>) -> String {
    let text = |name: &str| from.and_then(|from| from[name].as_str());
    if let Some(place) = text("address").or_else(|| text("file")) {
        return place.to_owned();
    }
    let process = from
        .and_then(|from| from["pid"].as_i64())
        .map(|pid| match text("program") {
            Some(program) => format!("{program}[{pid}]"),
            None => format!("pid {pid}"),
        });
    let parts: Vec<String> = text("user")
        .map(str::to_owned)
        .into_iter()
        .chain(process)
        .collect();
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(" ")
    }
}

/// Returns the cost per packet before and after a change, of the slower direction, as in the list
/// of probes.
fn costs(entry: &HistoryEntry) -> String {
    let all = |cost: Option<&ProbeCost>| {
        let runs = cost?.directions.values();
        let slowest = runs
            .filter_map(|direction| Some(direction.run.as_ref()?.ns_per_packet))
            .max();
        slowest.map(|slowest| slowest.to_string())
    };
    match (
        all(entry.cost_before.as_ref()),
        all(entry.cost_after.as_ref()),
    ) {
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
             "from":{"uid":0,"gid":0,"pid":77,"user":"root","program":"curl","login":"alice"}}]"#;
        let list: Vec<HistoryEntry> = serde_json::from_str(list).unwrap();
        let screen = Screen {
            width: 120,
            colour: false,
            wide: false,
        };
        assert_eq!(
            render(&list, false, screen),
            format!(
                "\
TIME                 CHANGE   REVISION  BY             FROM            NS/PACKET  WHY
{}  removed         1  uid:0 (alice)  root curl[77]
{}  expired         1  -              -               30 ->
{}  created         1  token:ci       192.0.2.1:4000  -> 30      first
",
                times::short("2026-11-21T12:00:00Z"),
                times::short("2026-11-21T11:00:00Z"),
                times::short("2026-11-21T10:00:00Z")
            )
        );
        let of_pid = |from: &str| origin(Some(&serde_json::from_str(from).unwrap()));
        assert_eq!(of_pid(r#"{"uid":7,"gid":7,"pid":8}"#), "pid 8");
        assert_eq!(of_pid(r#"{"uid":7,"gid":7,"pid":null}"#), "-");
        let narrow = render(
            &list,
            true,
            Screen {
                width: 80,
                ..screen
            },
        );
        assert!(
            narrow.contains("PROBE") && narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        assert!(narrow.starts_with("TIME  "), "{narrow}");
        assert_eq!(render(&[], true, screen), "no changes\n");
    }
}
