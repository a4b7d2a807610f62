//! Tests of the rules of `window`.

use std::time::Duration;

use super::*;
use crate::config::{Schedule, WindowConfig};

/// Returns a patch with a metric that has windows, and this `window`.
fn windowed(window: &Value) -> Value {
    json!({
        "ingress": { "metrics": [{ "name": "n", "map": "m", "snapshot": true, "init": true }] },
        "window": window,
    })
}

#[test]
fn windows_are_scheduled_and_retained() {
    let window = |window: Value| validate(&patched(&windowed(&window))).unwrap().window().unwrap().clone();
    assert_eq!(window(json!({})), WindowConfig::default());
    let given = window(json!({
        "interval": "250ms", "align": true, "retain": 3, "retain_bytes": 4096, "collectors": ["a", "b-1"],
    }));
    let schedule = Schedule { interval: Duration::from_millis(250), align: true };
    assert_eq!(given.schedule, Some(schedule));
    assert_eq!((given.retain(), given.retain_bytes()), (3, 4096));
    assert_eq!(given.collectors(), ["a", "b-1"]);
    for (text, seconds) in [("10s", 10), ("5m", 300), ("1h", 3600), ("24h", 86_400), ("1m 30s", 90)] {
        let interval = window(json!({ "interval": text })).schedule.unwrap().interval;
        assert_eq!(interval, Duration::from_secs(seconds), "{text}");
    }
}

#[test]
fn mistakes_about_windows_name_their_field() {
    for text in ["", "10", "-5s", "ten seconds", "0s", "999us", "25h", "1d"] {
        refused(&windowed(&json!({ "interval": text })), "window.interval", &format!("{text:?} is no"));
    }
    refused(&json!({ "window": { "interval": "1s" } }), "window.interval", "snapshot: true");
    refused(&windowed(&json!({ "align": true })), "window.align", "no interval");
    refused(&windowed(&json!({ "retain": 0 })), "window.retain", "1 to 100000");
    refused(&windowed(&json!({ "retain": 100_001 })), "window.retain", "1 to 100000");
    refused(&windowed(&json!({ "retain_bytes": 0 })), "window.retain_bytes", "at least 1 byte");
    refused(&windowed(&json!({ "collectors": ["a", "a"] })), "window.collectors[1]", "listed twice");
    refused(&windowed(&json!({ "collectors": ["/"] })), "window.collectors[0]", "no name of a collector");
}
