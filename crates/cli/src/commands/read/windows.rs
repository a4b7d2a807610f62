//! `twinprobe windows`.

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use twinprobe_client::{Client, LargestEntries, WindowQuery};
use twinprobe_ebpf_common::window::{Listing, WindowEntry};

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::format::OutputFormat;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::OutputView;

/// Lists the windows that are retained; or shows, acknowledges or closes one.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("document").args(["get", "close"]))]
#[command(group = ArgGroup::new("action").args(["get", "close", "ack"]))]
pub struct WindowsCommand {
    /// The probe
    name: String,
    /// Show this window
    #[arg(long, value_name = "SEQ")]
    get: Option<u64>,
    /// Show only this number of entries of each metric, the largest ones, and the others as one entry
    #[arg(long, value_name = "N", requires = "get")]
    top: Option<usize>,
    /// With --top, choose the entries by this field of the value, for example `bytes`; by default by the
    /// first counter
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
    /// Name of a collector: acknowledge for it, or list the windows that it has not acknowledged
    #[arg(long, value_name = "NAME", conflicts_with = "document")]
    collector: Option<String>,
    /// Format of the output; a list is a table, json or yaml
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table, conflicts_with = "ack")]
    #[arg(requires_ifs = [("xml", "document"), ("openmetrics", "document"), ("prometheus", "document")])]
    output: OutputFormat,
}

impl WindowsCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        let (name, accept) = (&self.name, self.output.media_type());
        if let Some(seq) = self.ack {
            client.acknowledge(name, seq, self.collector.as_deref()).await?;
            return print::print(format!("acknowledged {name} up to window {seq}"));
        }
        let document = match self.get {
            Some(seq) => {
                let largest = LargestEntries { top: self.top, by: self.by.as_deref() };
                client.window(name, seq, accept, largest).await?
            }
            None if self.close => client.close_window(name, accept).await?,
            None => return self.list(client).await,
        };
        print::print(self.output.show(&document)?)
    }

    async fn list(self, client: &Client) -> Result<(), CommandError> {
        let query = WindowQuery { after: self.after, wait: None, collector: self.collector.as_deref() };
        let list = client.windows(&self.name, query).await?;
        let view = self.output.view().unwrap_or(OutputView::Table);
        if self.output == OutputFormat::Json {
            return print::print(&list.body);
        }
        let listing = list.read()?;
        view.show(&print::value(&list)?, |screen| render(&listing, screen))
    }
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
    let mut text = if table.is_empty() { "no windows\n".to_owned() } else { table.render(screen) };
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
    Some(format!("{sign}{}.{:06} s", microseconds / 1_000_000, microseconds % 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(seq: u64, start: &str, end: &str, bytes: u64) -> WindowEntry {
        let time = |time: &str| format!("2026-11-21T{time}Z");
        WindowEntry { seq, start: time(start), end: time(end), bytes }
    }

    #[test]
    fn windows_are_listed_with_what_was_lost() {
        let windows = vec![
            window(9, "10:00:00.000000000", "10:00:10.000250000", 41216),
            window(10, "10:00:10.000250000", "10:00:10.250000000", 7),
        ];
        let screen = Screen { width: 200, colour: false, wide: false };
        let mut list = Listing { windows, lost_windows: 1, ..Listing::default() };
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
    fn odd_times_are_no_panic() {
        assert_eq!(duration(&window(1, "10:00:01", "10:00:00.5", 0)).as_deref(), Some("-0.500000 s"));
        assert_eq!(duration(&window(1, "yesterday", "today", 0)), None);
    }
}
