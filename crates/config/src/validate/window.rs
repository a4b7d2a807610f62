//! The rules of `window`.

use std::collections::BTreeSet;
use std::time::Duration;

use twinprobe_api::WindowDocument;

use crate::validate::findings::Findings;
use crate::validate::names;
use crate::window::{Schedule, WindowConfig};

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const MOST_RETAINED: u64 = 100_000;
const MOST_COLLECTORS: usize = 64;

/// Checks `window` and adds its mistakes to `findings`.
pub fn check(document: &WindowDocument, findings: &mut Findings) -> WindowConfig {
    let defaults = WindowConfig::default();
    let interval = document.interval.as_deref().and_then(|text| {
        let checked = names::duration(text, "interval of windows", SHORTEST..=LONGEST, "1ms to 24h");
        checked.map_err(|message| findings.add("window.interval", message)).ok()
    });
    if document.align == Some(true) && document.interval.is_none() {
        findings.add("window.align", "align needs an interval");
    }
    let retain = match document.retain {
        None => defaults.retain,
        Some(count @ 1..=MOST_RETAINED) => usize::try_from(count).unwrap_or(defaults.retain),
        Some(count) => {
            let message = format!("{count} windows can't be retained; 1 to {MOST_RETAINED} are possible");
            findings.add("window.retain", message);
            defaults.retain
        }
    };
    if document.retain_bytes == Some(0) {
        findings.add("window.retain_bytes", "the newest window is always kept; at least 1 byte is needed");
    }
    let schedule = interval.map(|interval| Schedule { interval, align: document.align == Some(true) });
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
        let message = format!("{} collectors are too many; {MOST_COLLECTORS} are possible", collectors.len());
        findings.add("window.collectors", message);
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, name) in collectors.iter().enumerate() {
        let field = format!("window.collectors[{index}]");
        if !names::is_probe_name(name) {
            let rule = "1 to 64 letters, digits, '_', '.', '-' are allowed, a letter or digit first";
            findings.add(field, format!("{} is not a name of a collector; {rule}", names::quote(name)));
        } else if !seen.insert(name) {
            findings.add(field, format!("{} is listed twice", names::quote(name)));
        }
    }
}
