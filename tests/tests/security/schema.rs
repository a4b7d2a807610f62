//! schemathesis sends a daemon all requests that its description allows and forbids, with each
//! role.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{DaemonOptions, scaled};

use crate::guarded::{ROLES, Scene, Token};

const PACKAGE: &str = "schemathesis==4.32.5";
const FILES: [(&str, &str); 2] = [
    ("hooks.py", include_str!("schema/hooks.py")),
    (
        "schemathesis.toml",
        include_str!("schema/schemathesis.toml"),
    ),
];
/// The seed of generated requests. Each role adds a number to it.
const SEED: usize = 1;
/// The server in the daemon's namespace that stores its samples.
const HISTORY: &str = "127.0.0.1:8428";
const DESCRIPTION: &str = include_str!("../../../api/openapi.yaml");

const EVENTS: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct event { __u32 len; };
struct event *unused __attribute__((unused));
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");
SEC("tc") int tell(struct __sk_buff *skb)
{
	struct event event = { .len = skb->len };
	bpf_ringbuf_output(&ring, &event, sizeof(event), 0);
	return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

#[test]
fn requests_and_answers_are_as_described() -> Result<()> {
    let python = python()?;
    let ran = thread::scope(|scope| {
        // Each role has a daemon of its own, so that no role finds the probes of another role.
        let run = |(index, role): (usize, &'static str)| {
            let python = &python;
            scope.spawn(move || {
                run(python, role, SEED + index).with_context(|| format!("the role {role}"))
            })
        };
        let runs: Vec<_> = ROLES.into_iter().enumerate().map(run).collect();
        runs.into_iter()
            .map(|run| run.join().expect("no panic"))
            .collect::<Vec<_>>()
    });
    let failed: Vec<String> = ran
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

fn run(python: &PathBuf, role: &'static str, seed: usize) -> Result<()> {
    let token = Token::new("schemathesis", role)?;
    let options = DaemonOptions::default()
        .argument("--history")
        .argument(format!("http://{HISTORY}"));
    let files = tempfile::tempdir()?;
    let nodes = files.path().join("nodes");
    fs::write(&nodes, "gw-1 unix:/none\n")?;
    let options = options.argument("--nodes").argument(&nodes);
    let scene = Scene::new(&[&token], options)?;
    let history = scene.namespace().enter(|| TcpListener::bind(HISTORY))??;
    // The thread ends with the process of the test.
    thread::spawn(move || {
        history
            .incoming()
            .flatten()
            .for_each(|asked| drop(answer(&asked)));
    });
    // The examples of the description name this interface.
    let link = [
        "link",
        "add",
        "eth0",
        "up",
        "type",
        "veth",
        "peer",
        "name",
        "eth0-peer",
    ];
    scene.namespace().run("ip", &link)?;
    deploy(&scene);
    let generator = Generator::new(
        scene.topology().generator(),
        "gen0",
        GeneratorOptions::default(),
    )?;
    let _traffic = generator.spawn(Load {
        rate: Some(100),
        ..Load::default()
    });
    let url = format!("http://{}", scene.tcp);
    let (_, authorization) = token.header();
    // schemathesis reads its hooks from the directory that it runs in, and leaves its findings
    // there.
    let directory = tempfile::tempdir()?;
    for (name, content) in FILES {
        fs::write(directory.path().join(name), content)?;
    }
    let mut command = Command::new(python);
    command
        .args([
            "-m",
            "schemathesis.cli",
            "--config-file",
            "schemathesis.toml",
            "run",
        ])
        .arg(format!("{url}/openapi.yaml"))
        .args(["--url", &url, "--no-color", "--seed", &seed.to_string()])
        .args(["--max-examples", &scaled(4, 400).to_string()])
        .args(["--phases", phases(role)])
        .args(["--header", &format!("Authorization: {authorization}")])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(directory.path());
    let output = scene.namespace().enter(|| command.output())??;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    reached(&scene, role)
}

/// The coverage of all limits of the schema takes minutes. A limit is the same for each role, so
/// only the role that may send every request covers them.
fn phases(role: &str) -> &'static str {
    if role == "admin" {
        "examples,coverage,fuzzing,stateful"
    } else {
        "examples,fuzzing,stateful"
    }
}

/// Answers a question of the daemon like a server with its samples.
fn answer(asked: &TcpStream) -> std::io::Result<()> {
    const FOUND: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"key":"0"},"values":[[0,"1"]]}]}}"#;
    let mut question = BufReader::new(asked);
    let (mut line, mut length) = (String::new(), 0);
    while question.read_line(&mut line)? > 2 {
        let lower = line.to_ascii_lowercase();
        length = lower
            .strip_prefix("content-length:")
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(length);
        line.clear();
    }
    question.read_exact(&mut vec![0; length])?;
    let head = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        FOUND.len()
    );
    let mut asked = asked;
    asked.write_all(format!("{head}{FOUND}").as_bytes())
}

/// Deploys the probes that `hooks.py` knows.
fn deploy(scene: &Scene) {
    let mut kept = counter_config("mon0", "XDP_PASS");
    kept["window"] = json!({ "collectors": ["archive"] });
    kept["fill"] = json!({ "blocked": [] });
    kept["ingress"]["source"] = json!(looking_up("XDP_PASS"));
    scene.daemon.put("/v1/probes/kept", &kept).expect(201);
    kept["ingress"]["source"] = json!(looking_up("XDP_DROP"));
    scene.daemon.put("/v1/probes/kept", &kept).expect(200);
    scene
        .daemon
        .request("POST", "/v1/probes/kept/windows", &[], b"")
        .expect(201);
    let reports = json!({
        "interface": "mon0",
        "ingress": {
            "hook": "tc", "source": EVENTS,
            "metrics": [{ "name": "lengths", "map": "ring", "type": "struct event" }]
        }
    });
    scene.daemon.put("/v1/probes/reports", &reports).expect(201);
    let mut template = counter_config("mon0", "XDP_PASS");
    template["labels"] = json!({ "packets": "{{sum(ingress.packets)}}" });
    scene
        .daemon
        .put("/v1/templates/kept", &template)
        .expect(201);
    // A rule of the same name with an earlier revision.
    for (text, status) in [("some", 201), ("many", 200)] {
        let rule = json!({ "watch": "kept", "when": "sum(ingress.packets) > 1e18", "do": [{ "mark": text }] });
        scene.daemon.put("/v1/rules/kept", &rule).expect(status);
    }
}

/// A counter that has a map `blocked`, whose entries come from outside.
fn looking_up(verdict: &str) -> String {
    let map = "struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 8); __type(key, __u32); __type(value, __u32); }
        blocked SEC(\".maps\");
        SEC(\"xdp\")";
    let lookup = "__u32 key = 0; bpf_map_lookup_elem(&blocked, &key);";
    xdp_counter(verdict)
        .replace("SEC(\"xdp\")", map)
        .replace("__u32 key = 0;", lookup)
}

/// Fails unless every operation was called, and every operation that the role permits has
/// succeeded.
fn reached(scene: &Scene, role: &str) -> Result<()> {
    let page = scene.daemon.get("/metrics").expect(200);
    let counted: BTreeSet<(String, String, u16)> =
        page.text().lines().filter_map(request).collect();
    let description: Value = yaml_serde::from_str(DESCRIPTION).expect("YAML");
    let rank = |role: &str| ROLES.iter().position(|known| *known == role);
    for (path, operations) in description["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let Some(needed) = operation["x-role"].as_str() else {
                continue;
            };
            // The names of the console's files can't be guessed.
            if needed == "none" {
                continue;
            }
            let may = rank(role) >= rank(needed);
            let answers: Vec<u16> = counted
                .iter()
                .filter(|(asked, route, _)| asked.eq_ignore_ascii_case(method) && route == path)
                .map(|(_, _, status)| *status)
                .collect();
            let done = |status: &u16| {
                if may {
                    (200..300).contains(status)
                } else {
                    *status == 403
                }
            };
            ensure!(
                answers.iter().any(done),
                "{method} {path} was answered with {answers:?} only"
            );
        }
    }
    Ok(())
}

/// Parses a sample of `twinprobe_http_requests_total` as method, route and status.
fn request(line: &str) -> Option<(String, String, u16)> {
    let labels = line.strip_prefix("twinprobe_http_requests_total{")?;
    let label = |name: &str| {
        labels
            .split(&format!("{name}=\""))
            .nth(1)?
            .split('"')
            .next()
    };
    Some((
        label("method")?.to_owned(),
        label("route")?.to_owned(),
        label("status")?.parse().ok()?,
    ))
}

/// Returns a Python that has schemathesis, in an environment in the target directory.
fn python() -> Result<PathBuf> {
    let environment = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(PACKAGE);
    let python = environment.join("bin/python3");
    let done = |command: &mut Command| -> Result<()> {
        let output = command.output().context("python3 is installed")?;
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        ensure!(
            output.status.success(),
            "{command:?} (Debian: apt-get install python3-venv): {out}{err}"
        );
        Ok(())
    };
    if done(Command::new(&python).args(["-c", "import schemathesis.cli"])).is_err() {
        done(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&environment),
        )?;
        let install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r"];
        let requirements =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../setup/requirements/schemathesis.txt");
        done(Command::new(&python).args(install).arg(requirements))?;
    }
    Ok(python)
}
