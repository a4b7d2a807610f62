//! Refusals: they have the right status and a finding that names the place, and change nothing.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, total, window, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Bystanders, Daemon, Response, Topology};

const HEADERS: &str = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n";

/// A daemon with a probe that counts and bystanders, which every refusal must leave alone.
struct Scene {
    topology: Topology,
    daemon: Daemon,
    bystanders: Bystanders,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        daemon
            .put("/v1/probes/kept", &counter_config("mon0", "XDP_PASS"))
            .expect(201);
        Ok(Self {
            topology,
            daemon,
            bystanders,
        })
    }

    /// Sends `config` as a new probe and as a replacement of the existing one. Returns the
    /// findings.
    fn refused(&self, status: u16, config: &Value) -> Vec<Value> {
        let before = self.daemon.json("/v1/probes");
        let created = problem(&self.daemon.put("/v1/probes/other", config), status);
        let replaced = problem(&self.daemon.put("/v1/probes/kept", config), status);
        assert_eq!(created, replaced);
        assert_eq!(self.daemon.json("/v1/probes"), before, "something changed");
        created
    }

    /// Checks that all probes still count and close windows.
    fn still_counts(self) -> Result<()> {
        self.daemon.json("/v1/probes/kept/metrics");
        Generator::new(
            self.topology.generator(),
            "gen0",
            GeneratorOptions::default(),
        )?
        .send(1000)?;
        let document = self.daemon.json("/v1/probes/kept/metrics");
        assert_eq!(total(&document, "ingress", "packets"), 1000);
        self.bystanders.finish()
    }
}

/// Checks a problem document against RFC 9457 and the API's description. Returns its findings.
fn problem(response: &Response, status: u16) -> Vec<Value> {
    assert_eq!(
        response.status,
        status,
        "{}",
        String::from_utf8_lossy(&response.body)
    );
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json")
    );
    let document = response.json();
    assert_eq!(document["status"], status);
    for field in ["type", "title", "detail"] {
        assert!(
            document[field]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{field}: {document}"
        );
    }
    document["errors"].as_array().cloned().unwrap_or_default()
}

fn with_source(source: impl Into<String>) -> Value {
    json!({ "interface": "mon0", "ingress": { "source": source.into() } })
}

fn text(finding: &Value) -> &str {
    finding["message"]
        .as_str()
        .expect("a finding has a message")
}

#[test]
fn configurations_that_are_wrong() -> Result<()> {
    let scene = Scene::new()?;
    let metrics = |metrics: Value| {
        let mut config = counter_config("mon0", "XDP_PASS");
        config["ingress"]["metrics"] = metrics;
        config
    };
    let cases: [(&str, Value, &str, &str); 9] = [
        (
            "unknown field",
            json!({ "interface": "mon0", "ingres": {} }),
            "ingres",
            "ingres",
        ),
        (
            "unknown field of a metric",
            metrics(json!([{ "name": "a", "map": "packets", "snapshots": true }])),
            "ingress.metrics[0]",
            "snapshots",
        ),
        (
            "no direction",
            json!({ "interface": "mon0" }),
            "ingress",
            "ingress",
        ),
        (
            "unknown interface",
            counter_config("nosuch0", "XDP_PASS"),
            "interface",
            "nosuch0",
        ),
        (
            "no such map",
            metrics(json!([window("a", "nosuch")])),
            "ingress.metrics[0].map",
            "packets",
        ),
        (
            "agg on a map that is not PERCPU",
            metrics(json!([{ "name": "a", "map": "packets", "agg": "sum" }])),
            "ingress.metrics[0].agg",
            "PERCPU",
        ),
        (
            "duplicate names",
            metrics(json!([{ "name": "a", "map": "packets" }, { "name": "a", "map": "packets2" }])),
            "ingress.metrics[1].name",
            "a",
        ),
        (
            "empty source",
            with_source(" \n"),
            "ingress.source",
            "empty",
        ),
        (
            "egress at XDP",
            json!({ "interface": "mon0", "egress": { "hook": "xdp", "source": xdp_counter("XDP_PASS") } }),
            "egress.hook",
            "tc",
        ),
    ];
    for (what, config, field, word) in cases {
        let findings = scene.refused(422, &config);
        assert!(!findings.is_empty(), "{what}: no findings");
        let found = findings.iter().any(|finding| {
            finding["field"]
                .as_str()
                .is_some_and(|f| f.starts_with(field))
                && text(finding).contains(word)
        });
        assert!(found, "{what}: {findings:?}");
    }
    scene.still_counts()
}

#[test]
fn every_mistake_is_named_at_once() -> Result<()> {
    let scene = Scene::new()?;
    let config = json!({
        "interface": "mon0",
        "format": "csv",
        "ingress": {
            "hook": "netfilter",
            "source": xdp_counter("XDP_PASS"),
            "metrics": [{ "name": "1bad", "map": "packets" }, { "name": "ok", "map": "", "agg": "median" }]
        }
    });
    let findings = scene.refused(422, &config);
    for field in [
        "format",
        "ingress.hook",
        "ingress.metrics[0].name",
        "ingress.metrics[1].map",
        "ingress.metrics[1].agg",
    ] {
        assert!(
            findings.iter().any(|finding| finding["field"] == field),
            "{field} is not in {findings:?}"
        );
    }
    scene.still_counts()
}

#[test]
fn bodies_that_are_no_json() -> Result<()> {
    let scene = Scene::new()?;
    let put = |headers: &[(&str, &str)], body: &[u8]| {
        scene
            .daemon
            .request("PUT", "/v1/probes/other", headers, body)
    };
    let json = [("content-type", "application/json")];
    for body in [
        &b"{\"interface\": "[..],
        b"",
        b"[1, 2",
        b"\xff\xfe",
        b"{\"interface\": \"mon0\",}",
    ] {
        problem(&put(&json, body), 400);
    }
    problem(&put(&[("content-type", "text/plain")], b"{}"), 415);
    let large = format!(
        "{{\"interface\":\"mon0\",\"ingress\":{{\"source\":\"{}\"}}}}",
        "x".repeat(3 << 20)
    );
    problem(&put(&json, large.as_bytes()), 413);
    scene.still_counts()
}

#[test]
fn a_source_that_does_not_compile_has_its_line_and_column() -> Result<()> {
    let scene = Scene::new()?;
    let source =
        format!("{HEADERS}SEC(\"xdp\") int f(struct xdp_md *ctx)\n{{\n\treturn  nonsense;\n}}\n");
    let findings = scene.refused(422, &with_source(source));
    let finding = &findings[0];
    assert_eq!(
        (&finding["stage"], &finding["field"]),
        (&json!("compile"), &json!("ingress.source"))
    );
    assert_eq!(
        (&finding["line"], &finding["column"]),
        (&json!(5), &json!(10)),
        "{finding}"
    );
    assert!(text(finding).contains("nonsense"));

    let findings = scene.refused(
        422,
        &with_source("#include <linux/bpf.h>\n#include \"no/such.h\"\n"),
    );
    assert_eq!(
        (&findings[0]["line"], &findings[0]["column"]),
        (&json!(2), &json!(10)),
        "{findings:?}"
    );
    assert!(text(&findings[0]).contains("no/such.h"));
    scene.still_counts()
}

#[test]
fn a_program_that_the_verifier_refuses_has_its_words_and_the_line() -> Result<()> {
    let scene = Scene::new()?;
    let source = format!(
        "{HEADERS}SEC(\"xdp\") int f(struct xdp_md *ctx)\n{{\n\tunsigned char *p = (void *)(long)ctx->data;\n\n\treturn p[100];\n}}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    );
    for snapshot in [false, true] {
        let mut config = with_source(source.clone());
        if snapshot {
            // The message is the same for a probe with twins.
            config["ingress"]["source"] = json!(format!(
                "{source}struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); \
                 __type(value, __u32); }} m SEC(\".maps\");\n"
            ));
            config["ingress"]["metrics"] = json!([window("m", "m")]);
        }
        let findings = scene.refused(422, &config);
        assert_eq!(findings[0]["stage"], "load");
        assert_eq!(findings[0]["line"], 7, "{findings:?}");
        assert!(
            text(&findings[0]).contains("invalid access to packet"),
            "{findings:?}"
        );
        let log = scene.daemon.put("/v1/probes/other", &config).json()["log"].clone();
        assert!(
            log.as_str()
                .is_some_and(|log| log.contains("invalid access to packet")),
            "{log}"
        );
    }
    scene.still_counts()
}

#[test]
fn entry_points_are_exactly_one() -> Result<()> {
    let scene = Scene::new()?;
    let findings = scene.refused(422, &with_source("int x;\n"));
    assert!(text(&findings[0]).contains("SEC(\"xdp\")"), "{findings:?}");
    let two = format!(
        "{}SEC(\"xdp\") int g(struct xdp_md *ctx) {{ return XDP_PASS; }}\n",
        xdp_counter("XDP_PASS")
    );
    let findings = scene.refused(422, &with_source(two));
    assert!(
        text(&findings[0]).contains("count") && text(&findings[0]).contains('g'),
        "{findings:?}"
    );
    let wrong = format!("{HEADERS}SEC(\"tc\") int f(struct __sk_buff *skb) {{ return 0; }}\n");
    let findings = scene.refused(422, &with_source(wrong));
    assert!(text(&findings[0]).contains('f'), "{findings:?}");
    scene.still_counts()
}

#[test]
fn paths_methods_and_representations_that_do_not_exist() -> Result<()> {
    let scene = Scene::new()?;
    problem(&scene.daemon.get("/v1/probes/nosuch"), 404);
    problem(&scene.daemon.get("/v1/probes/nosuch/metrics"), 404);
    problem(&scene.daemon.delete("/v1/probes/nosuch"), 404);
    problem(&scene.daemon.get("/v2"), 404);
    problem(&scene.daemon.request("PATCH", "/v1/probes", &[], b""), 405);
    scene
        .daemon
        .request("HEAD", "/v1/probes/kept/metrics", &[], b"")
        .expect(405);
    problem(
        &scene.daemon.request(
            "GET",
            "/v1/probes/kept/metrics",
            &[("accept", "text/html")],
            b"",
        ),
        406,
    );
    problem(&scene.daemon.get("/v1/probes/kept/metrics?format=csv"), 400);
    // None of these closed a window.
    assert_eq!(
        scene.daemon.json("/v1/probes/kept/metrics")["window"]["seq"],
        1
    );
    scene.still_counts()
}

/// Hostile sources are refused and never end the daemon.
#[test]
fn sources_that_attack_the_daemon() -> Result<()> {
    let scene = Scene::new()?;
    let program = "SEC(\"xdp\") int f(struct xdp_md *ctx) { return XDP_PASS; }\n";
    let cases = [
        (
            "a terabyte of .bss",
            format!("{HEADERS}char big[1UL << 40]; {program}"),
        ),
        (
            "a gigabyte of .bss",
            format!("{HEADERS}char big[1 << 30]; {program}"),
        ),
        (
            "legacy maps",
            format!("{HEADERS}struct {{ int a[9]; }} m SEC(\"maps\") = {{}}; {program}"),
        ),
        (
            "a damaged version",
            format!("{HEADERS}char v[3] SEC(\"version\") = \"ab\"; {program}"),
        ),
        (
            "a damaged license",
            format!("{HEADERS}char l[1] SEC(\"license\") = \"x\"; {program}"),
        ),
        (
            "a section of garbage",
            format!("{HEADERS}{program}asm(\".section xdp,\\\"ax\\\"\\n.byte 1,2,3\\n\");"),
        ),
        (
            "a map of no type",
            format!("{HEADERS}struct {{ __uint(max_entries, 1); }} m SEC(\".maps\"); {program}"),
        ),
        (
            "a map of 2^32-1 entries",
            format!(
                "{HEADERS}struct {{ __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 0xffffffff); __type(key, __u64); \
                 __type(value, __u64); }} m SEC(\".maps\"); {program}"
            ),
        ),
        (
            "no entries",
            format!(
                "{HEADERS}struct {{ __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 0); __type(key, __u32); \
                 __type(value, __u32); }} m SEC(\".maps\"); {program}"
            ),
        ),
        (
            "an undefined function",
            format!("{HEADERS}int g(void); SEC(\"xdp\") int f(struct xdp_md *c) {{ return g(); }}"),
        ),
        (
            "an endless loop",
            format!("{HEADERS}SEC(\"xdp\") int f(struct xdp_md *c) {{ for (;;) ; return 0; }}"),
        ),
    ];
    for (what, source) in cases {
        let response = scene.daemon.put("/v1/probes/other", &with_source(source));
        assert!(
            response.status == 422 || response.status == 201,
            "{what}: {}",
            response.text()
        );
        if response.status == 201 {
            scene.daemon.delete("/v1/probes/other").expect(204);
        } else {
            assert!(!problem(&response, 422).is_empty(), "{what}");
        }
    }
    scene.still_counts()
}
