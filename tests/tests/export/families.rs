//! The names of families in OpenMetrics, and the types that clients may ask for.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, Topology};

const SOURCE: &str = r#"#include <twinprobe.h>

struct times { __u64 server_nanoseconds_total; __u64 packets; };
TP_HISTOGRAM(slots);
TP_ARRAY(times, struct times, 1);
TP_ARRAY(packets, __u64, 1);

TP_PROBE(count, packet)
{
    struct times *sums = tp_at_index(times, 0);
    tp_histogram(slots, 7);
    if (sums)
        tp_add(&sums->server_nanoseconds_total, 7);
    __u64 *seen = tp_at_index(packets, 0);
    if (seen)
        tp_add(seen, 1);
    return TP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn config(ingress: &[(&str, &str)], egress: &[(&str, &str)]) -> Value {
    let direction = |metrics: &[(&str, &str)]| {
        let metrics: Vec<Value> = metrics
            .iter()
            .map(|(name, map)| json!({ "name": name, "map": map, "snapshot": true }))
            .collect();
        json!({ "source": SOURCE, "metrics": metrics })
    };
    let mut config = json!({ "interface": "mon0", "ingress": direction(ingress) });
    if !egress.is_empty() {
        config["egress"] = direction(egress);
    }
    config
}

/// Metrics that would cost each other their names and types are refused, and nothing changes.
#[test]
fn metrics_that_need_one_name_are_refused() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let fine = config(
        &[("latency_nanoseconds", "slots"), ("times", "times")],
        &[("latency_nanoseconds", "slots")],
    );
    daemon.put("/v1/probes/p", &fine).expect(201);
    let before = daemon.json("/v1/probes/p");
    let field = "field server_nanoseconds_total of ";
    for (ingress, egress, at, words) in [
        (
            &[("x_server_nanoseconds", "slots"), ("x", "times")][..],
            &[][..],
            "ingress.metrics[1].name",
            field,
        ),
        (
            &[("x_packets", "packets"), ("x", "times")],
            &[],
            "ingress.metrics[1].name",
            "field packets of x",
        ),
        (
            &[("x", "packets"), ("x_total", "packets")],
            &[],
            "ingress.metrics[1].name",
            "x_total (ingress.metrics[1])",
        ),
        (
            &[("x_bucket", "packets")],
            &[("x", "slots")],
            "egress.metrics[0].name",
            "x_bucket",
        ),
        (
            &[("x", "packets")],
            &[("x", "slots")],
            "egress.metrics[0].name",
            "x (ingress.metrics[0])",
        ),
    ] {
        let config = config(ingress, egress);
        for answer in [
            daemon.put("/v1/probes/p", &config),
            daemon.post("/v1/validate", &config),
        ] {
            let problem = answer.expect(422).json();
            let error = &problem["errors"][0];
            assert_eq!(
                (&error["stage"], &error["field"]),
                (&json!("config"), &json!(at)),
                "{problem}"
            );
            let message = error["message"].as_str().expect("a message");
            assert!(
                message.contains(words) && message.contains("rename"),
                "{message}"
            );
            assert!(message.contains(ingress[0].0), "{message}");
        }
    }
    for (name, subsystem) in [
        ("twinprobe_probes", None),
        ("probes", Some("twinprobe")),
        ("process_open_fds", None),
    ] {
        let mut config = config(&[(name, "packets")], &[]);
        if let Some(subsystem) = subsystem {
            config["subsystem"] = json!(subsystem);
        }
        let problem = daemon.put("/v1/probes/p", &config).expect(422).json();
        let error = &problem["errors"][0];
        assert_eq!(error["field"], "ingress.metrics[0].name", "{problem}");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|said| said.contains("daemon's own")),
            "{problem}"
        );
    }
    assert_eq!(daemon.json("/v1/probes/p")["revision"], before["revision"]);
    // A metric that no reading shows needs no name.
    let mut hidden = config(&[("x", "packets"), ("x_total", "times")], &[]);
    hidden["ingress"]["metrics"][1]["export"] = json!(false);
    hidden["ingress"]["metrics"][1]["init"] = json!(true);
    daemon.post("/v1/validate", &hidden).expect(200);
    Ok(())
}

#[test]
fn accept_decides_what_is_answered() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/p", &config(&[("x", "packets")], &[]))
        .expect(201);
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let open = "application/openmetrics-text; version=1.0.0";
    let both = [
        ("text/plain", Ok(text)),
        ("text/plain; version=0.0.4", Ok(text)),
        ("application/openmetrics-text", Ok(open)),
        (
            "application/openmetrics-text; version=1.0.0; q=0.5, text/plain; q=0.9",
            Ok(text),
        ),
        (
            "application/openmetrics-text; version=1.0.0, text/plain; q=0.9",
            Ok(open),
        ),
        ("text/*, application/openmetrics-text; q=0", Ok(text)),
        ("application/openmetrics-text; version=9", Err(())),
        ("image/png", Err(())),
        ("text/plain; q=0", Err(())),
    ];
    for path in ["/metrics", "/v1/probes/p/metrics"] {
        for (accept, expected) in both {
            let answer = daemon.request("GET", path, &[("Accept", accept)], b"");
            let Ok(expected) = expected else {
                assert_eq!(answer.status, 406, "{path} {accept}");
                assert!(
                    answer.text().contains(text) && answer.text().contains(open),
                    "{}",
                    answer.text()
                );
                continue;
            };
            let found = answer.header("content-type").unwrap_or_default();
            assert!(
                answer.status == 200 && found.starts_with(expected),
                "{path} {accept}: {found}"
            );
            assert_eq!(
                answer.text().ends_with("# EOF\n"),
                expected == open,
                "{path} {accept}"
            );
        }
    }
    for (accept, expected) in [("*/*", open), ("", open), ("text/html, */*;q=0.1", open)] {
        let page = daemon
            .request("GET", "/metrics", &[("Accept", accept)], b"")
            .expect(200);
        assert!(
            page.header("content-type")
                .unwrap_or_default()
                .starts_with(expected),
            "{accept}"
        );
    }
    let newer = "text/plain; version=1.0.0; charset=utf-8; escaping=underscores";
    let messages = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    for (accept, expected) in [
        (
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5",
            newer,
        ),
        (
            &*format!("{messages};q=0.6,application/openmetrics-text;q=0.5,*/*;q=0.1"),
            messages,
        ),
        (
            &format!("{messages};q=0.2,application/openmetrics-text;q=0.5"),
            open,
        ),
    ] {
        let page = daemon
            .request("GET", "/metrics", &[("Accept", accept)], b"")
            .expect(200);
        assert!(
            page.header("content-type")
                .unwrap_or_default()
                .starts_with(expected),
            "{accept}"
        );
        assert!(
            page.body
                .windows(7)
                .any(|bytes| bytes == b"x_total" || bytes == b"packets"),
            "{accept}"
        );
    }
    for other in [
        messages.replace("delimited", "text"),
        messages.replace("MetricFamily", "Metric"),
    ] {
        let refused = daemon
            .request("GET", "/metrics", &[("Accept", &other)], b"")
            .expect(406);
        assert!(refused.text().contains(messages), "{}", refused.text());
    }
    let document = daemon
        .request("GET", "/v1/probes/p/metrics", &[("Accept", "*/*")], b"")
        .expect(200);
    assert_eq!(document.header("content-type"), Some("application/json"));
    daemon
        .request("GET", "/metrics", &[("Accept", "application/json")], b"")
        .expect(406);
    Ok(())
}
