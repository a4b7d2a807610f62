//! `twinprobe windows`.

use clap::{ArgGroup, Args};
use hyper::Method;
use jiff::Timestamp;
use serde::Deserialize;

use super::metrics::Output;
use crate::client::http::{self, JSON};
use crate::client::table::Table;
use crate::client::{ClientError, Server, output};

/// Lists the windows that are retained; or shows, acknowledges or closes one.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("document").args(["get", "close"]))]
#[command(group = ArgGroup::new("action").args(["get", "close", "ack"]))]
pub struct Windows {
    /// The probe
    name: String,
    /// Show this window
    #[arg(long, value_name = "SEQ")]
    get: Option<u64>,
    /// Close the window now and show it
    #[arg(long)]
    close: bool,
    /// Acknowledge all windows up to this one
    #[arg(long, value_name = "SEQ")]
    ack: Option<u64>,
    /// List only windows after this one
    #[arg(long, value_name = "SEQ", conflicts_with = "action")]
    after: Option<u64>,
    /// Who acknowledges; or list what this one has not acknowledged
    #[arg(long, value_name = "NAME", conflicts_with = "document")]
    collector: Option<String>,
    /// How to show it; a list is a table or json
    #[arg(short, long, value_enum, default_value_t = Output::Table, conflicts_with = "ack")]
    #[arg(requires_ifs = [("xml", "document"), ("openmetrics", "document")])]
    output: Output,
}

/// What the daemon answers to a list.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct WindowList {
    pub windows: Vec<Listed>,
    pub lost_windows: u64,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Listed {
    pub seq: u64,
    start: String,
    end: String,
    bytes: u64,
}

impl Windows {
    pub async fn run(self, server: &Server) -> Result<(), ClientError> {
        if let Some(seq) = self.ack {
            acknowledge(server, &self.name, seq, self.collector.as_deref()).await?;
            let text = format!("acknowledged {} up to window {seq}", self.name);
            return Ok(output::print(text.as_bytes())?);
        }
        let (method, path) = match self.get {
            Some(seq) => (Method::GET, window_path(&self.name, seq)),
            None if self.close => (Method::POST, http::probe_path(&self.name, "/windows")),
            None => return self.list(server).await,
        };
        let document = http::send(server, method, &path, self.output.media_type(), None).await?;
        Ok(output::print(&self.output.show(&document)?)?)
    }

    async fn list(self, server: &Server) -> Result<(), ClientError> {
        let path = list_path(&self.name, self.after, None, self.collector.as_deref());
        let reply = http::send(server, Method::GET, &path, JSON, None).await?;
        if self.output == Output::Json {
            return Ok(output::print(&reply.body)?);
        }
        Ok(output::print(render(&reply.parse()?, output::width()).as_bytes())?)
    }
}

pub(super) fn window_path(probe: &str, seq: u64) -> String {
    http::probe_path(probe, &format!("/windows/{seq}"))
}

/// `wait`: seconds, if it is a long poll.
pub(super) fn list_path(
    probe: &str,
    after: Option<u64>,
    wait: Option<u64>,
    collector: Option<&str>,
) -> String {
    let parameters = [
        after.map(|after| format!("after={after}")),
        wait.map(|wait| format!("wait={wait}")),
        collector.map(|collector| format!("collector={}", http::encoded(collector))),
    ];
    let query: Vec<String> = parameters.into_iter().flatten().collect();
    let separator = if query.is_empty() { "" } else { "?" };
    http::probe_path(probe, &format!("/windows{separator}{}", query.join("&")))
}

pub(super) async fn acknowledge(
    server: &Server,
    probe: &str,
    seq: u64,
    collector: Option<&str>,
) -> Result<(), ClientError> {
    let query = collector.map(|name| format!("?collector={}", http::encoded(name))).unwrap_or_default();
    http::send(server, Method::DELETE, &(window_path(probe, seq) + &query), JSON, None).await?;
    Ok(())
}

pub(super) fn lost(windows: u64) -> String {
    if windows == 1 {
        return "1 window was lost before it was acknowledged".to_owned();
    }
    format!("{windows} windows were lost before they were acknowledged")
}

fn render(list: &WindowList, width: usize) -> String {
    let mut table = Table::default();
    for window in &list.windows {
        let mut row = table.row();
        row.number("SEQ", &window.seq.to_string());
        row.text("START", &window.start);
        row.text("END", &window.end);
        row.number("DURATION", &duration(window).unwrap_or_default());
        row.number("BYTES", &window.bytes.to_string());
    }
    let mut text = if table.is_empty() { "no windows\n".to_owned() } else { table.render(width) };
    if list.lost_windows > 0 {
        text.push_str(&format!("{}\n", lost(list.lost_windows)));
    }
    text
}

/// To the microsecond; negative if the clock was set back.
fn duration(window: &Listed) -> Option<String> {
    let [start, end]: [Timestamp; 2] = [window.start.parse().ok()?, window.end.parse().ok()?];
    let microseconds = end.duration_since(start).as_micros();
    let sign = if microseconds < 0 { "-" } else { "" };
    let microseconds = microseconds.unsigned_abs();
    Some(format!("{sign}{}.{:06} s", microseconds / 1_000_000, microseconds % 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(seq: u64, start: &str, end: &str, bytes: u64) -> Listed {
        let time = |time: &str| format!("2026-11-21T{time}Z");
        Listed { seq, start: time(start), end: time(end), bytes }
    }

    #[test]
    fn windows_are_listed_with_what_was_lost() {
        let windows = vec![
            window(9, "10:00:00.000000000", "10:00:10.000250000", 41216),
            window(10, "10:00:10.000250000", "10:00:10.250000000", 7),
        ];
        let mut list = WindowList { windows, lost_windows: 1 };
        let expected = "\
SEQ  START                           END                                DURATION  BYTES
  9  2026-11-21T10:00:00.000000000Z  2026-11-21T10:00:10.000250000Z  10.000250 s  41216
 10  2026-11-21T10:00:10.000250000Z  2026-11-21T10:00:10.250000000Z   0.249750 s      7
1 window was lost before it was acknowledged
";
        assert_eq!(render(&list, 200), expected);
        (list.windows, list.lost_windows) = (Vec::new(), 0);
        assert_eq!(render(&list, 200), "no windows\n");
    }

    #[test]
    fn odd_times_are_no_panic() {
        assert_eq!(duration(&window(1, "10:00:01", "10:00:00.5", 0)).as_deref(), Some("-0.500000 s"));
        assert_eq!(duration(&window(1, "yesterday", "today", 0)), None);
    }

    #[test]
    fn queries_hold_what_was_asked_for() {
        assert_eq!(list_path("p", None, None, None), "/v1/probes/p/windows");
        let all = list_path("p", Some(3), Some(60), Some("a&b"));
        assert_eq!(all, "/v1/probes/p/windows?after=3&wait=60&collector=a%26b");
    }
}
