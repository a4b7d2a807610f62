//! The origin of numbers: labels, node and instance in the status, in documents and in lists of
//! windows.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

const PROBES: [&str; 3] = ["p", "q", "r"];
const NOTE: &str = "<\"a\\b\"\n\u{e4}&'";

fn config(labels: &Value) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["labels"] = labels.clone();
    config
}

fn path(probe: &str) -> String {
    format!("/v1/probes/{probe}")
}

#[test]
fn documents_say_where_they_come_from() -> Result<()> {
    let topology = Topology::new()?;
    let options = DaemonOptions::default()
        .argument("--node-name")
        .argument("gw \"1\"");
    let mut daemon = Daemon::start_with(topology.monitor(), &options)?;
    let labels = json!({ "note": NOTE, "rack": "7" });
    let mut instances = Vec::new();
    for probe in PROBES {
        let status = daemon
            .put(&path(probe), &config(&labels))
            .expect(201)
            .json();
        assert_eq!(
            (&status["node"], &status["labels"]),
            (&json!("gw \"1\""), &labels)
        );
        instances.push(status["instance"].as_str().expect("an instance").to_owned());
        let document = Windows::of(&daemon, probe).close();
        for field in ["node", "instance", "labels"] {
            assert_eq!(document[field], status[field]);
        }
    }
    assert_eq!(
        instances
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        PROBES.len()
    );
    let windows = Windows::of(&daemon, "p");
    let xml = String::from_utf8(windows.bytes(1, "xml"))?;
    let head = format!(
        "<metrics probe=\"p\" node=\"gw &quot;1&quot;\" instance=\"{}\"",
        instances[0]
    );
    assert!(xml.contains(&head), "{xml}");
    let rest = "<label name=\"note\">&lt;&quot;a\\b&quot;\n\u{e4}&amp;&apos;</label><label name=\"rack\">7</label>";
    assert!(xml.contains(rest), "{xml}");
    let own = "note=\"<\\\"a\\\\b\\\"\\n\u{e4}&'\",rack=\"7\"";
    let samples = |text: &str, labels: &str| {
        assert!(
            text.contains(&format!(
                "packets{{probe=\"p\",direction=\"ingress\",interface=\"mon0\",{labels},key=\"0\"}} "
            )),
            "{text}"
        );
    };
    samples(&String::from_utf8(windows.bytes(1, "openmetrics"))?, own);
    let page = daemon.get("/metrics");
    samples(page.text(), own);
    let info = |text: &str, node: &str, labels: &str| {
        let info = format!(
            "twinprobe_probe_info{{probe=\"p\",node={node},instance=\"{}\",{labels}}} 1",
            instances[0]
        );
        assert!(text.contains(&info), "{info}: {text}");
    };
    info(page.text(), "\"gw \\\"1\\\"\"", own);
    info(
        &String::from_utf8(windows.bytes(1, "openmetrics"))?,
        "\"gw \\\"1\\\"\"",
        own,
    );

    // Windows keep their labels and their node from the time when they were closed; the instance
    // belongs to the probe's creation.
    let before: Vec<_> = ["json", "xml", "openmetrics"]
        .map(|format| windows.bytes(1, format))
        .into();
    let changed = json!({ "rack": "8" });
    assert_eq!(
        daemon.put(&path("p"), &config(&changed)).expect(200).json()["labels"],
        changed
    );
    daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    let after: Vec<_> = ["json", "xml", "openmetrics"]
        .map(|format| windows.bytes(1, format))
        .into();
    assert_eq!(before, after);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?
        .trim()
        .to_owned();
    let document = windows.close();
    let origin = |value: &Value| [value["node"].clone(), value["instance"].clone()];
    assert_eq!(origin(&document), [json!(host), json!(instances[0])]);
    assert_eq!(document["labels"], changed);
    assert_eq!(
        origin(&daemon.json("/v1/probes/p/windows")),
        origin(&document)
    );
    samples(daemon.get("/metrics").text(), "rack=\"8\"");
    daemon
        .request("POST", "/v1/probes/p/rollback", &[], b"")
        .expect(200);
    let status = daemon.json(&path("p"));
    assert_eq!(
        (&status["instance"], &status["labels"]),
        (&json!(instances[0]), &labels)
    );

    // A probe that is deleted and created again counts as another probe.
    daemon.delete(&path("p")).expect(204);
    let anew = daemon
        .put(&path("p"), &config(&json!({})))
        .expect(201)
        .json();
    assert_ne!(anew["instance"], json!(instances[0]));
    assert_eq!(
        (anew.get("labels"), windows.close().get("labels")),
        (None, None)
    );
    Ok(())
}

/// A part of a key with the name of a label gets another name.
#[test]
fn labels_and_keys_do_not_collide() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/p", &config(&json!({ "key": "mine" })))
        .expect(201);
    Windows::of(&daemon, "p").close();
    for text in [
        daemon.get("/metrics"),
        daemon.get("/v1/probes/p/windows/1?format=openmetrics"),
    ] {
        let sample = "packets{probe=\"p\",direction=\"ingress\",interface=\"mon0\",key=\"mine\",key_key=\"0\"} 0";
        assert!(text.text().contains(sample), "{}", text.text());
    }
    let problem = daemon
        .put(
            "/v1/probes/p",
            &config(&json!({ "probe": "x", "ok": "\u{1}" })),
        )
        .expect(422)
        .json();
    let fields: Vec<&Value> = problem["errors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|error| &error["field"])
        .collect();
    assert_eq!(fields, ["labels.ok", "labels"]);
    Ok(())
}
