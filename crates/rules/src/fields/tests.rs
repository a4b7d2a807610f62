use serde_json::{Value, json};
use twinprobe_ebpf_common::window::shape::MetricShape;

use super::selector;
use crate::expression::reading::Selector;

fn metric(key: &Value) -> MetricShape {
    let value = json!({ "type": "unsigned", "bits": 64 });
    let metric = json!({
        "direction": "ingress", "name": "m", "map": "m", "type": "hash", "reading": "window", "key": key, "value": value,
    });
    serde_json::from_value(metric).expect("a metric")
}

/// Documents have one form of each key. A selector in another form would choose no entry, without a
/// word.
#[test]
fn selectors_have_the_form_of_documents() {
    for (key, text, shown) in [
        (
            json!({ "type": "ip" }),
            "::ffff:192.0.2.1",
            Some("192.0.2.1"),
        ),
        (json!({ "type": "ip" }), "2001:DB8::1", Some("2001:db8::1")),
        (json!({ "type": "ipv4" }), "192.0.2.1", Some("192.0.2.1")),
        (json!({ "type": "ipv4" }), "2001:db8::1", None),
        (
            json!({ "type": "prefix" }),
            "2001:DB8::/032",
            Some("2001:db8::/32"),
        ),
        (json!({ "type": "prefix" }), "10.0.0.0/33", None),
        (json!({ "type": "unsigned", "bits": 8 }), "00", Some("0")),
        (
            json!({ "type": "unsigned", "bits": 8 }),
            "+255",
            Some("255"),
        ),
        (json!({ "type": "unsigned", "bits": 8 }), "256", None),
        (json!({ "type": "unsigned", "bits": 64 }), "-1", None),
        (
            json!({ "type": "signed", "bits": 8 }),
            "-0128",
            Some("-128"),
        ),
        (json!({ "type": "signed", "bits": 8 }), "128", None),
        (
            json!({ "type": "decimal", "signed": false }),
            "007",
            Some("7"),
        ),
        (json!({ "type": "float", "bits": 64 }), "1", Some("1.0")),
        (
            json!({ "type": "mac" }),
            "2:0:0:0:0:AB",
            Some("02:00:00:00:00:ab"),
        ),
        (json!({ "type": "mac" }), "02:00", None),
        (
            json!({ "type": "hex", "size": 2 }),
            "0xABcd",
            Some("0xabcd"),
        ),
        (json!({ "type": "hex", "size": 2 }), "0xab", None),
        (
            json!({ "type": "name", "names": [{ "value": 6, "name": "TCP" }] }),
            "06",
            Some("TCP"),
        ),
        (
            json!({ "type": "name", "names": [{ "value": 6, "name": "TCP" }] }),
            "TCP",
            Some("TCP"),
        ),
        (
            json!({ "type": "name", "names": [{ "value": 6, "name": "TCP" }] }),
            "07",
            Some("7"),
        ),
        (
            json!({ "type": "name", "names": [{ "value": 6, "name": "TCP" }] }),
            "tcp",
            None,
        ),
        (json!({ "type": "text", "size": 4 }), "0A", Some("0A")),
    ] {
        let found = selector(&metric(&key), text);
        match shown {
            Some(shown) => assert_eq!(found, Ok(Selector::Key(shown.to_owned())), "{key}"),
            None => assert!(
                found.is_err_and(|message| message.contains("can't be a key")),
                "{key}: {text}"
            ),
        }
        let mut parts = json!({ "type": "struct", "fields": [{ "name": "part" }] });
        for (name, value) in key.as_object().expect("an object") {
            parts["fields"][0][name] = value.clone();
        }
        let found = selector(&metric(&parts), &format!("part={text}"));
        assert_eq!(
            found.ok(),
            shown.map(|shown| Selector::Part("part".to_owned(), shown.to_owned())),
            "{key}"
        );
    }
}
