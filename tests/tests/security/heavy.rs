//! Bodies that are small but would take long: each is refused at once, with the limit, and delays
//! no other client.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::{Daemon, Topology};

/// The time in which a daemon answers on a busy machine. Before there were bounds, such bodies kept
/// it for minutes.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn bodies_that_are_nested_without_end_hold_up_nobody() -> Result<()> {
    const LEVELS: usize = 60_000;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let yaml = "application/yaml";
    let bodies = [
        (yaml, "{a: ".repeat(LEVELS), "64 levels"),
        (yaml, "[\n".repeat(LEVELS), "64 levels"),
        (yaml, "- ".repeat(LEVELS), "64 levels"),
        (yaml, "? ".repeat(LEVELS), "64 levels"),
        (
            yaml,
            format!("{}---\na: b\n", "%TAG !a! x\n".repeat(LEVELS)),
            "16 directives",
        ),
        (
            yaml,
            format!(
                "shared_maps:\n- &a {}\n{}",
                "x".repeat(LEVELS),
                "- *a\n".repeat(LEVELS)
            ),
            "references",
        ),
        ("application/json", "[".repeat(LEVELS), "64 levels"),
        ("application/json", "{\"a\":".repeat(LEVELS), "64 levels"),
    ];
    std::thread::scope(|threads| {
        let daemon = &daemon;
        let send = |(media_type, body, words): &(&'static str, String, &'static str)| {
            let (media_type, body, words) = (*media_type, body.clone(), *words);
            threads.spawn(move || {
                let headers = [("content-type", media_type)];
                let answer = daemon
                    .request("POST", "/v1/validate", &headers, body.as_bytes())
                    .expect(400);
                assert!(answer.text().contains(words), "{words}: {}", answer.text());
            })
        };
        let sent: Vec<_> = bodies.iter().chain(&bodies).map(send).collect();
        let begun = Instant::now();
        while sent.iter().any(|sent| !sent.is_finished()) {
            let asked = Instant::now();
            daemon.get("/healthz").expect(200);
            assert!(
                asked.elapsed() < SOON,
                "/healthz took {:?}",
                asked.elapsed()
            );
            assert!(
                begun.elapsed() < 6 * SOON,
                "they take {:?}",
                begun.elapsed()
            );
        }
    });
    Ok(())
}

/// Lists of any length would take time at each reading, and the answer would have a mistake for
/// each entry.
#[test]
fn lists_have_a_bound_that_the_answer_names() -> Result<()> {
    const ENTRIES: usize = 50_000;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let names: Vec<String> = (0..ENTRIES).map(|n| format!("if{n}")).collect();
    let objects: Value = names
        .iter()
        .map(|name| (name.clone(), json!("sum")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let refused = |change: &dyn Fn(&mut Value), field: &str, words: &[&str]| {
        let mut config = counter_config("mon0", "XDP_PASS");
        change(&mut config);
        for (method, path) in [("POST", "/v1/validate"), ("PUT", "/v1/probes/p")] {
            let headers = [("content-type", "application/json")];
            let answer = daemon
                .request(method, path, &headers, config.to_string().as_bytes())
                .expect(422);
            assert!(
                answer.text().len() < 256 << 10,
                "{field}: {} bytes",
                answer.text().len()
            );
            let errors = &answer.json()["errors"];
            let of_field = |error: &&Value| error["field"] == field;
            let message = errors
                .as_array()
                .and_then(|errors| errors.iter().find(of_field))
                .map(|error| &error["message"]);
            let message = message.and_then(Value::as_str).unwrap_or_default();
            words.iter().for_each(|word| {
                assert!(message.contains(word), "{field}: {word} is not in {errors}");
            });
        }
    };
    let bound = ["50000", "1024"];
    refused(
        &|config| {
            config["interface"].take();
            config
                .as_object_mut()
                .expect("an object")
                .remove("interface");
            config["interfaces"] = json!(names);
        },
        "interfaces",
        &bound,
    );
    refused(
        &|config| config["shared_maps"] = json!(names),
        "shared_maps",
        &bound,
    );
    refused(
        &|config| config["ingress"]["metrics"] = json!(vec![json!({}); ENTRIES]),
        "ingress.metrics",
        &bound,
    );
    let metric = json!({ "name": "m", "map": "m", "snapshot": true, "merge": objects });
    refused(
        &|config| config["ingress"]["metrics"] = json!([metric]),
        "ingress.metrics[0].merge",
        &bound,
    );
    refused(
        &|config| config["ingress"]["defines"] = objects.clone(),
        "ingress.defines",
        &["50000", "256"],
    );
    refused(
        &|config| config["labels"] = objects.clone(),
        "labels",
        &["50000", "32"],
    );
    refused(
        &|config| config["window"] = json!({ "collectors": names }),
        "window.collectors",
        &["50000", "64"],
    );
    // A mistake that many entries share is not reported for each of them.
    refused(
        &|config| config["ingress"]["metrics"] = json!(vec![json!({}); 1000]),
        "ingress.metrics[0].name",
        &["no name"],
    );
    assert_eq!(daemon.json("/v1/probes"), json!({ "probes": [] }));
    Ok(())
}
