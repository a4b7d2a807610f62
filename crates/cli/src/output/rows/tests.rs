use serde_json::json;

use super::*;
use crate::output::times::precise;

fn show(document: &Value, width: usize) -> String {
    let tables = tables(document, false).chosen(&Choice::default());
    render(
        tables,
        Screen {
            width,
            colour: false,
            wide: false,
        },
    )
}

#[test]
fn a_document_becomes_tables() {
    let document = json!({
        "probe": "flows", "interfaces": ["eth0"],
        "window": { "seq": 3, "start": "2026-11-21T10:00:00Z", "end": "2026-11-21T10:00:10Z", "quiesce_us": 71 },
        "ingress": {
            "packets_total": { "map": "packets", "type": "percpu_array", "help": "Packets seen", "agg": "sum",
                "entries": [{ "key": 0, "value": 18446744073709551615_u64 }, { "key": 10, "value": 7 }] },
            "flows": { "map": "f", "type": "hash", "help": "", "entries": [
                { "key": { "src": "10.0.0.1", "port": 80 }, "value": { "bytes": 1500, "tcp": { "syn": 1 } } },
                { "key": { "src": "10.0.0.20", "port": 8080 }, "value": { "bytes": 7, "tcp": { "syn": 22 } } }] },
            "per_cpu": { "map": "c", "type": "percpu_hash", "entries": [{ "key": 1, "value": [3, 40] }] },
            "structs": { "map": "s", "type": "percpu_array", "entries": [
                { "key": 1, "value": [{ "bytes": 3 }, { "bytes": 4 }] }] },
            "samples": { "map": "q", "type": "queue", "entries": [{ "value": [1, 2] }, { "value": "ff" }] },
        },
        "egress": { "none": { "map": "n", "type": "lru_hash", "entries": [] } },
    });
    let times = ["2026-11-21T10:00:00Z", "2026-11-21T10:00:10Z"].map(precise);
    let expected = format!("window 3: {} to {}\n", times[0], times[1])
        + "
ingress packets_total (percpu_array, sum over the CPUs): Packets seen
key                 value
  0  18446744073709551615
 10                     7

ingress flows (hash)
key.src    key.port  bytes  tcp.syn
10.0.0.1         80   1500        1
10.0.0.20      8080      7       22

ingress per_cpu (percpu_hash)
key  cpu0  cpu1
  1     3    40

ingress structs (percpu_array)
key  cpu  bytes
  1    0      3
  1    1      4

ingress samples (queue)
value
[1,2]
ff

egress none (lru_hash)
no entries
";
    assert_eq!(show(&document, 100), expected);
}

#[test]
fn a_map_without_entries_is_shown_if_it_lost_any() {
    let of = |map: &str, lost: u64| json!({ "map": map, "type": "hash", "entries": [], "completeness": { "failed_inserts": lost } });
    let document = json!({ "ingress": { "quiet": of("quiet", 0), "crowded": of("crowded", 7) } });
    assert_eq!(
        show(&document, 100),
        "ingress crowded (hash, 7 insertions found no room)\nno entries\n"
    );
}

#[test]
fn odd_documents_are_no_panic() {
    assert_eq!(show(&json!({}), 100), "no metrics\n");
    assert_eq!(show(&json!([1]), 100), "no metrics\n");
    show(
        &json!({ "ingress": { "a": 5, "b": { "entries": [5, null, { "key": [{}] }] } } }),
        0,
    );
}

#[test]
fn a_column_is_unknown_only_if_no_table_is_empty() {
    let entry = json!({ "key": 1, "value": { "packets": 3 } });
    let document = |flows: Value| {
        json!({ "ingress": {
            "all": { "type": "array", "entries": [{ "key": 0, "value": 7 }] },
            "flows": { "type": "hash", "entries": flows },
        } })
    };
    let lacks = |document: &Value, column: &str| tables(document, false).lack(column);
    let empty = document(json!([]));
    assert_eq!(lacks(&empty, "packets"), None, "entries may bring it");
    assert_eq!(lacks(&empty, "octets"), None);
    let filled = document(json!([entry]));
    assert_eq!(lacks(&filled, "packets"), None);
    assert_eq!(
        lacks(&filled, "octets"),
        Some(["key", "value", "packets"].map(str::to_owned).to_vec())
    );
}

#[test]
fn keys_have_the_labels_of_a_configuration_as_titles() {
    let entry = |key: &str, value: u64| json!({ "key": key, "value": value });
    let talkers =
        json!({ "type": "array", "entries": [entry("192.0.2.9", 5), entry("192.0.2.1", 3)] });
    let document = json!({ "ingress": { "talkers": talkers }, "egress": { "talkers": talkers } });
    let config =
        json!({ "ingress": { "metrics": [{ "map": "talkers", "key_label": "address" }] } });
    let mut tables = tables(&document, false);
    tables.title_keys(&serde_json::from_value(config).unwrap());
    assert_eq!(tables.lack("address"), None);
    let tables = tables.chosen(&Choice {
        sort: Some("address".to_owned()),
        ..Choice::default()
    });
    let text = render(
        tables,
        Screen {
            width: 80,
            colour: false,
            wide: false,
        },
    );
    let expected = "\
ingress talkers (array)
address    value
192.0.2.1      3
192.0.2.9      5

egress talkers (array)
key        value
192.0.2.9      5
192.0.2.1      3
";
    assert_eq!(text, expected);
}

#[test]
fn names_stand_beside_whole_keys_at_eighty_columns() {
    let key = |source: &str, port: u16| json!({ "source": source, "destination": "192.0.2.255", "port": port });
    let entry = |source: &str, port, bytes: u64| json!({ "key": key(source, port), "value": { "bytes": bytes } });
    let document = json!({ "ingress": { "flows": { "map": "f", "type": "hash", "entries": [
        entry("192.0.2.1", 80, u64::MAX), entry("2001:db8::1", 8080, 5), entry("192.0.2.9", 1, 1) ] } } });
    let mut tables = tables(&document, false).chosen(&Choice {
        top: Some(2),
        ..Choice::default()
    });
    let keys: Vec<String> = tables
        .keys()
        .filter(|key| key.contains(['.', ':']))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        keys,
        ["192.0.2.1", "192.0.2.255", "2001:db8::1", "192.0.2.255"],
        "those that are shown"
    );
    tables.name_keys(|key| match key {
        "192.0.2.1" => Some("shop/web-7d9c5b8f4d-x2x4k (Deployment w…".to_owned()),
        "192.0.2.255" => Some("gateway.example".to_owned()),
        _ => None,
    });
    let text = render(
        tables,
        Screen {
            width: 80,
            colour: false,
            wide: false,
        },
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for key in [
        "192.0.2.1 ",
        "192.0.2.255 ",
        "2001:db8::1",
        "18446744073709551615",
        "gateway.example",
    ] {
        assert!(text.contains(key), "{key} in {text}");
    }
    assert!(text.contains("and 1 more"), "{text}");
}

#[test]
fn the_largest_ranges_of_a_histogram_keep_their_order() {
    let entry = |key: u64, value: u64| json!({ "key": key, "value": value });
    let entries = [
        entry(5, 4),
        entry(6, 20),
        entry(7, 1),
        entry(8, 2),
        entry(9, 3),
        entry(10, 70),
    ];
    let sizes = json!({ "type": "array", "histogram": true, "entries": entries });
    let document = json!({ "ingress": { "packet_sizes": sizes } });
    let shown = |choice: &Choice| {
        let text = render(
            tables(&document, true).chosen(choice),
            Screen {
                width: 100,
                colour: false,
                wide: false,
            },
        );
        text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = shown(&Choice {
        top: Some(2),
        ..Choice::default()
    });
    let starts: Vec<&str> = lines
        .iter()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(starts[..2], ["64", "1024"], "{lines:?}");
    assert!(lines[1].ends_with(" 70 %"), "{lines:?}");
    assert_eq!(lines[2], "and 4 more: 10");
    let sorted = shown(&Choice {
        sort: Some("count".to_owned()),
        top: Some(1),
        ..Choice::default()
    });
    assert!(
        sorted[0].trim_start().starts_with("1024") && sorted[1] == "and 5 more",
        "{sorted:?}"
    );
    assert!(
        !shown(&Choice {
            top: Some(6),
            ..Choice::default()
        })
        .iter()
        .any(|line| line.contains("more"))
    );
}
