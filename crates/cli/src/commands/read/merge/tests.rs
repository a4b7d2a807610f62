use super::*;

fn part(node: &str, end: &str, metrics: &Value) -> NodePart {
    let config = json!({ "ingress": { "metrics": [
        { "name": "flows", "merge": { "last": "max", "first": "min" } }, { "name": "state", "merge": "or" } ] } });
    let document = json!({ "node": node, "window": { "seq": 3, "start": "2026-11-22T10:00:00Z", "end": end },
        "ingress": metrics, "egress": {} });
    NodePart {
        node: node.to_owned(),
        document,
        status: Some(json!({ "config": config })),
    }
}

#[test]
fn documents_add_up_by_the_rules_of_each_metric() {
    let flows = |key: &str, packets: u64, first: u64, last: u64| {
        json!({ "key": key, "value": { "packets": packets,
        "first": first, "last": last, "from": key } })
    };
    let a = json!({ "flows": { "type": "hash", "max_entries": 2, "entries": [flows("x", 1, 10, 20), flows("y", 5, 1, 2)] },
        "state": { "type": "array", "entries": [{ "key": 0, "value": 5 }, { "key": 1, "value": 0 }] },
        "per_cpu": { "type": "percpu_array", "entries": [{ "key": 0, "value": [1, 2] }] } });
    let b = json!({ "flows": { "type": "hash", "full": true, "entries": [flows("x", u64::MAX - 1, 8, 12)] },
        "state": { "type": "array", "entries": [{ "key": 0, "value": 2 }, { "key": 1, "value": 4 }] },
        "per_cpu": { "type": "percpu_array", "entries": [{ "key": 0, "value": [1, 2, 3] }] },
        "only_here": { "type": "queue", "entries": [{ "value": 7 }] } });
    let merged = merge(
        "p",
        vec![
            part("b", "2026-11-22T10:00:20Z", &b),
            part("a", "2026-11-22T10:00:10Z", &a),
        ],
    );
    assert_eq!(
        merged["window"],
        json!({ "start": "2026-11-22T10:00:00Z", "end": "2026-11-22T10:00:20Z" })
    );
    let ingress = &merged["ingress"];
    assert_eq!(
        ingress["flows"]["entries"],
        json!([flows("x", u64::MAX, 8, 20), flows("y", 5, 1, 2)])
    );
    assert_eq!(
        (
            &ingress["flows"]["full"],
            ingress["flows"].get("max_entries")
        ),
        (&json!(true), None)
    );
    assert_eq!(
        ingress["state"]["entries"],
        json!([{ "key": 0, "value": 7 }, { "key": 1, "value": 4 }])
    );
    assert_eq!(ingress["per_cpu"]["entries"][0]["value"], json!([2, 4, 3]));
    assert_eq!(ingress["only_here"]["entries"], json!([{ "value": 7 }]));
    assert_eq!(merged["nodes"][1]["node"], "b");
}

#[test]
fn flags_of_tcp_are_those_of_all_daemons() {
    let flows = |flags: Value| json!({ "flows": { "type": "hash", "entries": [{ "key": 1, "value": { "TCP_FLAGS": flags } }] } });
    let merged = |a, b| {
        let parts =
            [("a", "1", a), ("b", "2", b)].map(|(node, end, flags)| part(node, end, &flows(flags)));
        merge("p", parts.into())["ingress"]["flows"]["entries"][0]["value"]["TCP_FLAGS"].clone()
    };
    assert_eq!(merged(json!("SYN|ACK"), json!("FIN|ACK")), "FIN|SYN|ACK");
    assert_eq!(
        (merged(json!(0), json!("SYN")), merged(json!(0), json!(0))),
        (json!("SYN"), json!(0))
    );
}

#[test]
fn queues_are_appended() {
    let queue = |value: u64| json!({ "q": { "type": "queue", "entries": [{ "value": value }] } });
    let parts = vec![part("a", "1", &queue(1)), part("b", "2", &queue(1))];
    assert_eq!(
        merge("p", parts)["ingress"]["q"]["entries"],
        json!([{ "value": 1 }, { "value": 1 }])
    );
}

#[test]
fn sums_go_on_where_64_bits_end() {
    let part = |node: &str, value: &str| {
        let metrics =
            format!(r#"{{"v":{{"type":"array","entries":[{{"key":0,"value":{value}}}]}}}}"#);
        part(node, node, &exact::parse(metrics.as_bytes()).unwrap())
    };
    for (values, expected) in [
        (
            [
                "9223372036854775813",
                "9223372036854775813",
                "9223372036854775813",
            ],
            "27670116110564327439",
        ),
        (
            ["-9223372036854775808", "-1", "-18446744073709551616"],
            "-27670116110564327425",
        ),
        (
            ["340282366920938463463374607431768211455", "1", "0"],
            "340282366920938463463374607431768211455",
        ),
        (["18446744073709551616", "-1", "1"], "18446744073709551616"),
    ] {
        let parts = ["a", "b", "c"]
            .into_iter()
            .zip(values)
            .map(|(node, value)| part(node, value));
        let merged = merge("p", parts.collect());
        let text = exact::written(merged["ingress"]["v"]["entries"].to_string());
        assert_eq!(text, format!(r#"[{{"key":0,"value":{expected}}}]"#));
    }
}

#[test]
fn fields_join_by_what_they_mean() {
    let early = "2026-11-22T10:00:00.000000000Z";
    let late = "2026-11-22T10:00:00.000000001Z";
    let value = |packets: u64, min: u64, flags: &str, times: [&str; 2]| {
        json!({ "v": { "type": "hash", "entries": [{ "key": 1, "value": {
            "packets": packets, "min_length": min, "port": 80, "tcp_flags": min, "flags": flags, "load": 0.5,
            "first": times[0], "last": times[1], "list": [min] } }] } })
    };
    let a = value(u64::MAX, 60, "0x12", [late, late]);
    let b = value(1, 40, "0x01", [early, early]);
    let merged = merge("p", vec![part("a", "1", &a), part("b", "2", &b)]);
    let past = exact::parse(b"18446744073709551616").unwrap();
    let expected = json!({ "packets": past, "min_length": 40, "port": 80, "tcp_flags": 60 | 40, "flags": "0x13",
        "load": 1.0, "first": early, "last": late, "list": [100] });
    assert_eq!(merged["ingress"]["v"]["entries"][0]["value"], expected);

    // The daemon's answer comes first: the daemon knows the width of a number and its rendering.
    let value = |port: u64| json!({ "v": { "type": "hash", "entries": [{ "key": 1, "value": { "to": port, "port": port } }] } });
    let part = |node: &str| {
        let mut part = part(node, node, &value(80));
        part.status = Some(json!({ "joins": [
            { "direction": "egress", "metric": "v", "fields": { "port": "last" } },
            { "direction": "ingress", "metric": "v", "fields": { "to": "last" } } ] }));
        part
    };
    let merged = merge("p", vec![part("a"), part("b")]);
    assert_eq!(
        merged["ingress"]["v"]["entries"][0]["value"],
        json!({ "to": 80, "port": 160 })
    );
}
