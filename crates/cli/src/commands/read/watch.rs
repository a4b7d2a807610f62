//! `twinprobe watch`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::commands::read::picture::Picture;
use crate::output::format::OutputFormat;

/// Shows each window once, those that are retained and then each as it is closed, until it is
/// interrupted or the probe is deleted. On a terminal each table takes the place of the one before.
/// Windows of a probe without an interval are closed by the watch, unless it follows them for a
/// collector. The watch waits for a restart of the daemon.
#[derive(Debug, Args)]
pub struct WatchCommand {
    /// The probe
    pub name: String,
    /// Format of the windows; json is a line for each window
    #[arg(short, long, value_enum, default_value_t = OutputFormat::TABLE)]
    pub output: OutputFormat,
    /// For a probe without an interval: close its window after each such time [default: 2s]. For
    /// others: the least time between two outputs
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<Duration>,
    #[command(flatten)]
    pub picture: Picture,
    /// Show counts per second
    #[arg(long)]
    pub rate: bool,
    /// Begin with the windows that close from now on (now), with the oldest window (oldest), or
    /// after window SEQ
    #[arg(long, value_name = "now|oldest|SEQ", conflicts_with = "after")]
    pub from: Option<From>,
    /// Show one window and end
    #[arg(long)]
    pub once: bool,
    /// Begin after this window; by default with the oldest one, or with the first that the
    /// collector has not acknowledged
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
    /// Acknowledge each window once it is printed
    #[arg(long)]
    pub ack: bool,
    /// Name of the collector that follows and acknowledges
    #[arg(long, value_name = "NAME")]
    pub collector: Option<String>,
}

/// The window with which a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Now,
    Oldest,
    After(u64),
}

impl FromStr for From {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "now" => Ok(Self::Now),
            "oldest" => Ok(Self::Oldest),
            number => number
                .parse()
                .map(Self::After)
                .map_err(|_| "neither now, oldest nor the number of a window"),
        }
    }
}

/// Reads a time as configurations write it: `500ms`, `2s`, `1m`.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: Option<u64> = text[..digits].parse().ok();
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let time = number
        .and_then(|number| number.checked_mul(unit))
        .filter(|milliseconds| *milliseconds >= 10);
    time.map(Duration::from_millis)
        .ok_or("no time of at least 10ms, as in 500ms, 2s or 1m")
}

impl WatchCommand {
    /// Tells whether collectors take the windows; then a watch must neither close nor skip any.
    pub const fn collects(&self) -> bool {
        self.ack || self.collector.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_beginnings_are_read() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("1m"), Ok(Duration::from_secs(60)));
        for wrong in [
            "",
            "s",
            "0s",
            "5ms",
            "2 s",
            "-1s",
            "2x",
            "99999999999999999999s",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!("now".parse(), Ok(From::Now));
        assert_eq!("17".parse(), Ok(From::After(17)));
        assert!("then".parse::<From>().is_err());
    }
}
