use serde_json::{Value, json};

use super::*;

fn status() -> Value {
    json!({
        "name": "flows", "state": "running", "revision": 2, "created": "2026-11-21T10:00:00Z",
        "interfaces": [
            { "interface": "eth0", "state": "attached", "ifindex": 2, "direction": "ingress", "hook": "xdp",
              "mode": "native" },
            { "interface": "eth1", "state": "pending", "reason": "there is none" } ],
        "programs": { "ingress": { "entry": "count", "twins": true } },
        "windows": { "retained": 2, "bytes": 512, "oldest": 3, "newest": 4, "lost": 0, "damaged": 0 },
        "warnings": [],
        "config": { "interface": "eth*", "fill": { "hosts": [{ "key": 1, "value": 2 }] }, "ingress": { "source": "int x;", "defines": { "KEY": "1" } } },
    })
}

#[test]
fn a_status_is_written_as_it_is_read() {
    let read: ProbeStatus = serde_json::from_value(status()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), status());
    let without = serde_json::to_value(read.clone().without_sources()).unwrap();
    assert_eq!(
        without["config"],
        json!({ "interface": "eth*", "ingress": { "defines": { "KEY": "1" } } })
    );
    let without = serde_json::to_value(read.without_secrets()).unwrap();
    assert_eq!(
        without["config"],
        json!({ "interface": "eth*", "ingress": {} })
    );
}

#[test]
fn a_later_daemon_is_understood() {
    let mut later = status();
    later["config"]["colour"] = "blue".into();
    later["colour"] = "blue".into();
    let read: ProbeStatus = serde_json::from_value(later).unwrap();
    assert_eq!((read.name.as_str(), read.config), ("flows", None));
}
