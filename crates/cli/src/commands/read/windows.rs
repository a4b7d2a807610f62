//! `twinprobe windows`.

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use serde_json::Value;
use twinprobe_client::{Client, LargestEntries, WindowQuery};
use twinprobe_ebpf_common::window::{Listing, WindowEntry};

use crate::commands::read::picture::{self, Picture};
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::moment;
use crate::output::format::OutputFormat;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::OutputView;

/// Lists the windows that are retained; or shows, acknowledges or closes one.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("retained").args(["get", "at"]))]
#[command(group = ArgGroup::new("document").args(["get", "at", "close"]))]
#[command(group = ArgGroup::new("action").args(["get", "at", "close", "ack"]))]
pub struct WindowsCommand {
    /// The probe
    name: String,
    /// Show this window
    #[arg(long, value_name = "SEQ")]
    get: Option<u64>,
    /// Show the window of this time: `yesterday 14:00`, `2026-11-21 10:00` or 10:00 by the clock of
    /// this machine, 2026-11-21T10:00:00Z, or -1h for an hour ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::begin)]
    at: Option<Timestamp>,
    /// Show only this number of entries of each metric, the largest ones, and the others as one
    /// entry
    #[arg(long, value_name = "N", requires = "retained")]
    top: Option<usize>,
    /// With --top, choose the entries by this field of the value, for example `bytes`; by default
    /// by the first counter
    #[arg(long, value_name = "FIELD", requires = "top")]
    by: Option<String>,
    /// Close the window now and show it
    #[arg(long)]
    close: bool,
    /// Acknowledge all windows up to this one
    #[arg(long, value_name = "SEQ")]
    ack: Option<u64>,
    /// List only windows after this one
    #[arg(long, value_name = "SEQ", conflicts_with = "action")]
    after: Option<u64>,
    /// List only windows of this time and later, as for --at
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "action", value_parser = moment::begin)]
    from: Option<Timestamp>,
    /// List only windows before this time, as for --at
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "action", value_parser = moment::end)]
    to: Option<Timestamp>,
    /// Name of a collector: acknowledge for it, or list the windows that it has not acknowledged
    #[arg(long, value_name = "NAME", conflicts_with = "document")]
    collector: Option<String>,
    /// Format of the output; a list is a table, json or yaml
    #[arg(short, long, value_enum, default_value_t = OutputFormat::TABLE, conflicts_with = "ack")]
    #[arg(requires_ifs = OutputFormat::of_documents().map(|format| (format.name(), "document")))]
    output: OutputFormat,
}

impl WindowsCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        let (name, accept) = (&self.name, self.output.media_type());
        if let Some(seq) = self.ack {
            client
                .acknowledge(name, seq, self.collector.as_deref())
                .await?;
            return print::print(format!("acknowledged {name} up to window {seq}"));
        }
        let chosen = match self.at {
            Some(time) => Some(self.of(time, client).await?),
            None => self.get,
        };
        let document = match chosen {
            Some(seq) => {
                let largest = LargestEntries {
                    top: self.top,
                    by: self.by.as_deref(),
                };
                client.window(name, seq, accept, largest).await?
            }
            None if self.close => client.close_window(name, accept).await?,
            None => return self.list(client).await,
        };
        if self.output.is_table() {
            let (document, config) = (document.read()?, picture::config(client, name).await);
            let picture = Picture::default();
            let screen = self.output.screen();
            return print::print(
                picture
                    .draw(client, &document, config.as_ref(), None, screen)
                    .await?,
            );
        }
        print::print(self.output.show(&document)?)
    }

    async fn list(self, client: &Client) -> Result<(), CommandError> {
        if self.from.zip(self.to).is_some_and(|(from, to)| from >= to) {
            return Err(CommandError::NoTime);
        }
        let query = WindowQuery {
            after: self.after,
            wait: None,
            collector: self.collector.as_deref(),
        };
        let list = client.windows(&self.name, query).await?;
        let view = self.output.view().unwrap_or(OutputView::Table);
        let is_whole = self.from.is_none() && self.to.is_none();
        if matches!(self.output, OutputFormat::View(OutputView::Json)) && is_whole {
            return print::print(&list.body);
        }
        let (mut listing, mut value) = (list.read()?, print::value(&list)?);
        if !is_whole {
            let is_inside = |start: &str, end: &str| {
                let ends_later = |from| end.parse::<Timestamp>().is_ok_and(|end| end > from);
                let starts_earlier = |to| start.parse::<Timestamp>().is_ok_and(|start| start < to);
                self.from.is_none_or(ends_later) && self.to.is_none_or(starts_earlier)
            };
            listing
                .windows
                .retain(|window| is_inside(&window.start, &window.end));
            if let Some(windows) = value["windows"].as_array_mut() {
                let text = |window: &Value, name: &str| {
                    window[name].as_str().unwrap_or_default().to_owned()
                };
                windows.retain(|window| is_inside(&text(window, "start"), &text(window, "end")));
            }
        }
        view.show(&value, |screen| render(&listing, screen))
    }

    /// Returns the number of the window of a time.
    async fn of(&self, time: Timestamp, client: &Client) -> Result<u64, CommandError> {
        let query = WindowQuery {
            after: None,
            wait: None,
            collector: None,
        };
        let listing = client.windows(&self.name, query).await?.read()?;
        let why = |why| {
            let time = times::short(&time.to_string());
            CommandError::NoWindowThen {
                name: self.name.clone(),
                time,
                why,
            }
        };
        at(&listing.windows, time).map_err(why)
    }
}

/// Returns the number of the open window at a time. If that window had nearly ended, the next one
/// counts: a window ends some milliseconds after the full minute of its clock.
fn at(windows: &[WindowEntry], time: Timestamp) -> Result<u64, String> {
    let times: Vec<(u64, Timestamp, Timestamp)> = windows
        .iter()
        .filter_map(|window| {
            Some((
                window.seq,
                window.start.parse().ok()?,
                window.end.parse().ok()?,
            ))
        })
        .collect();
    let shown = |time: &Timestamp| times::precise(&time.to_string());
    let Some(found) = times.iter().position(|(_, _, end)| *end > time) else {
        return Err(match times.last() {
            Some((seq, _, end)) => format!("the newest one, window {seq}, ended at {}", shown(end)),
            None => "none is retained".to_owned(),
        });
    };
    let (seq, start, end) = times[found];
    if start > time {
        return Err(match found.checked_sub(1).map(|before| times[before]) {
            Some((before, _, end)) => {
                let between = match seq - before {
                    1 => "",
                    _ => "; the windows between were removed, or scrapes of /metrics ended them",
                };
                format!(
                    "window {before} ended at {}, and the next one, {seq}, began at {}{between}",
                    shown(&end),
                    shown(&start)
                )
            }
            None => format!("the oldest one, window {seq}, began at {}", shown(&start)),
        });
    }
    let next = times.get(found + 1).filter(|(_, start, _)| *start == end);
    let has_all_but_ended = end.duration_since(time) * 20 < end.duration_since(start);
    Ok(next
        .filter(|_| has_all_but_ended)
        .map_or(seq, |(next, ..)| *next))
}

pub fn lost(windows: u64) -> String {
    if windows == 1 {
        return "1 window was lost before it was acknowledged".to_owned();
    }
    format!("{windows} windows were lost before they were acknowledged")
}

fn render(list: &Listing, screen: Screen) -> String {
    let mut table = TextTable::default();
    for window in &list.windows {
        let mut row = table.row();
        row.number("SEQ", &window.seq.to_string());
        row.text("START", &times::precise(&window.start));
        row.text("END", &times::precise(&window.end));
        row.number("DURATION", &duration(window).unwrap_or_default());
        row.number("BYTES", &window.bytes.to_string());
    }
    let mut text = if table.is_empty() {
        "no windows\n".to_owned()
    } else {
        table.render(screen)
    };
    if list.lost_windows > 0 {
        text.push_str(&format!("{}\n", lost(list.lost_windows)));
    }
    text
}

/// Formats the length of a window to the microsecond; negative if the clock was set back.
fn duration(window: &WindowEntry) -> Option<String> {
    let [start, end]: [Timestamp; 2] = [window.start.parse().ok()?, window.end.parse().ok()?];
    let microseconds = end.duration_since(start).as_micros();
    let sign = if microseconds < 0 { "-" } else { "" };
    let microseconds = microseconds.unsigned_abs();
    Some(format!(
        "{sign}{}.{:06} s",
        microseconds / 1_000_000,
        microseconds % 1_000_000
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(seq: u64, start: &str, end: &str, bytes: u64) -> WindowEntry {
        let time = |time: &str| format!("2026-11-21T{time}Z");
        WindowEntry {
            seq,
            start: time(start),
            end: time(end),
            bytes,
        }
    }

    #[test]
    fn windows_are_listed_with_what_was_lost() {
        let windows = vec![
            window(9, "10:00:00.000000000", "10:00:10.000250000", 41216),
            window(10, "10:00:10.000250000", "10:00:10.250000000", 7),
        ];
        let screen = Screen {
            width: 200,
            colour: false,
            wide: false,
        };
        let mut list = Listing {
            windows,
            lost_windows: 1,
            ..Listing::default()
        };
        let at = |time: &str| times::precise(&format!("2026-11-21T{time}Z"));
        let (start, middle, end) = (at("10:00:00"), at("10:00:10"), at("10:00:10.25"));
        let expected = format!(
            "\
SEQ  START                    END                         DURATION  BYTES
  9  {start}  {middle}  10.000250 s  41216
 10  {middle}  {end}   0.249750 s      7
1 window was lost before it was acknowledged
"
        );
        assert_eq!(render(&list, screen), expected);
        (list.windows, list.lost_windows) = (Vec::new(), 0);
        assert_eq!(render(&list, screen), "no windows\n");
    }

    #[test]
    fn a_time_has_the_window_that_was_open() {
        let windows = [
            window(1, "10:00:00.100000000", "10:01:00.003000000", 1),
            window(2, "10:01:00.003000000", "10:02:00.002000000", 1),
            window(5, "10:04:00.000000000", "10:05:00.001000000", 1),
        ];
        let find = |time: &str| at(&windows, format!("2026-11-21T{time}Z").parse().unwrap());
        assert_eq!(find("10:00:30"), Ok(1));
        assert_eq!(
            find("10:01:00"),
            Ok(2),
            "the end of the first one came three milliseconds late"
        );
        assert_eq!(find("10:02:00"), Ok(2), "there is no window 3");
        assert_eq!(find("10:04:00"), Ok(5));
        assert!(
            find("10:00:00")
                .unwrap_err()
                .starts_with("the oldest one, window 1, began at 2026-11-2")
        );
        let gap = find("10:03:00").unwrap_err();
        assert!(
            gap.starts_with("window 2 ended at ") && gap.contains("the next one, 5, began at"),
            "{gap}"
        );
        assert!(
            find("10:05:01")
                .unwrap_err()
                .starts_with("the newest one, window 5, ended at ")
        );
        assert_eq!(
            at(&[], Timestamp::UNIX_EPOCH),
            Err("none is retained".to_owned())
        );
    }

    #[test]
    fn odd_times_are_no_panic() {
        assert_eq!(
            duration(&window(1, "10:00:01", "10:00:00.5", 0)).as_deref(),
            Some("-0.500000 s")
        );
        assert_eq!(duration(&window(1, "yesterday", "today", 0)), None);
    }
}
