//! The settings of a probe's windows, and their rules.

use std::collections::BTreeSet;
use std::time::Duration;

use twinprobe_api::WindowDocument;

use crate::validate::findings::Findings;
use crate::validate::names;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const MOST_RETAINED: u64 = 100_000;
const MOST_COLLECTORS: usize = 64;

/// The schedule on which windows are closed without a request, and the limits of their retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    pub schedule: Option<Schedule>,
    /// The largest number of windows without an acknowledgement; beyond it the oldest window is
    /// dropped.
    pub retain: usize,
    /// The limit of retained windows in bytes on disk.
    pub retain_bytes: u64,
    /// The collectors that must acknowledge a window; if empty, any client can acknowledge it.
    pub collectors: Vec<String>,
}

/// The schedule of windows that are closed by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub interval: Duration,
    /// True if windows end at multiples of the interval since the Unix epoch; otherwise the
    /// interval counts from the start of the first window.
    pub align: bool,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            schedule: None,
            retain: 32,
            retain_bytes: 256 << 20,
            collectors: Vec::new(),
        }
    }
}

/// Checks `window` and adds its mistakes to `findings`.
pub fn check(document: &WindowDocument, findings: &mut Findings) -> WindowConfig {
    let defaults = WindowConfig::default();
    let interval = document.interval.as_deref().and_then(|text| {
        let checked = names::duration(
            text,
            "interval of windows",
            SHORTEST..=LONGEST,
            "1ms to 24h",
        );
        checked
            .map_err(|message| findings.add("window.interval", message))
            .ok()
    });
    if document.align == Some(true) && document.interval.is_none() {
        findings.add("window.align", "align needs an interval");
    }
    let retain = match document.retain {
        None => defaults.retain,
        Some(count @ 1..=MOST_RETAINED) => usize::try_from(count).unwrap_or(defaults.retain),
        Some(count) => {
            let message = format!("{count} windows can't be retained; use 1 to {MOST_RETAINED}");
            findings.add("window.retain", message);
            defaults.retain
        }
    };
    if document.retain_bytes == Some(0) {
        findings.add(
            "window.retain_bytes",
            "the newest window is always kept; at least 1 byte is needed",
        );
    }
    let schedule = interval.map(|interval| Schedule {
        interval,
        align: document.align == Some(true),
    });
    let collectors = document.collectors.clone().unwrap_or_default();
    check_collectors(&collectors, findings);
    WindowConfig {
        schedule,
        retain,
        retain_bytes: document.retain_bytes.unwrap_or(defaults.retain_bytes),
        collectors,
    }
}

fn check_collectors(collectors: &[String], findings: &mut Findings) {
    if collectors.len() > MOST_COLLECTORS {
        let message = format!(
            "{} collectors are too many; the limit is {MOST_COLLECTORS}",
            collectors.len()
        );
        findings.add("window.collectors", message);
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, name) in collectors.iter().enumerate() {
        let field = format!("window.collectors[{index}]");
        if !names::is_probe_name(name) {
            let rule =
                "1 to 64 letters, digits, '_', '.', '-' are allowed, a letter or digit first";
            findings.add(
                field,
                format!(
                    "{} is not a name of a collector; {rule}",
                    names::quote(name)
                ),
            );
        } else if !seen.insert(name) {
            findings.add(field, format!("{} is listed twice", names::quote(name)));
        }
    }
}
