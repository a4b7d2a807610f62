//! `twinprobe stream`: its output, its refusals and its previews.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{binary, helper};

use crate::scene::{COLLECTOR, Node, configuration, stream, tool};
use crate::tables::layouts::{MEMBERS, close, counting};

/// `twinprobe stream` starts the program twinprobe-stream in the same directory.
#[test]
fn twinprobe_stream_runs_the_program_beside_it() -> Result<()> {
    let output = Command::new(binary()?)
        .args(["stream", "--help"])
        .output()?;
    let help = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success()
            && help.contains("--dry-run")
            && help.contains("Usage: twinprobe stream"),
        "{help}"
    );
    let alone = tempfile::tempdir()?;
    std::fs::copy(binary()?, alone.path().join("twinprobe"))?;
    let output = Command::new(alone.path().join("twinprobe"))
        .arg("stream")
        .env("PATH", "")
        .output()?;
    let error = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.code() == Some(1) && error.contains("package twinprobe contains it"),
        "{error}"
    );
    Ok(())
}

#[test]
fn mistakes_are_usage_errors_and_secrets_are_not_repeated() -> Result<()> {
    for (arguments, expected) in [
        (
            &["--to", "nats://me:hunter2@host/S"][..],
            "names a file with the secret",
        ),
        (
            &["--to", "smoke://host"],
            "this build has no receiver smoke://",
        ),
        (&["--to", "file:///d", "--memory", "1"], "1MiB is the least"),
        (
            &["--to", "file:///d", "--from", "ftp://x"],
            "from.servers[0]: ftp://x",
        ),
        (&["--from", "unix:/s"], "--file"),
        (&["-f", "/none.yaml"], "/none.yaml: can't be read"),
    ] {
        let output = stream(arguments)?;
        let error = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.code() == Some(2) && error.contains(expected),
            "{arguments:?}: {error}"
        );
        ensure!(!error.contains("hunter2"), "{error}");
    }
    Ok(())
}

/// A preview contacts no receiver and acknowledges nothing; probes for other collectors are left to
/// these.
#[test]
fn a_dry_run_takes_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let node = Node::new("node-0")?;
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let windows = directory.path().join("windows");
    let to = json!([{ "file": { "directory": windows } }, { "nats": { "servers": ["127.0.0.1:1"], "stream": "W" } }]);
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?
        .display()
        .to_string();
    let output = stream(&["-f", &config, "--dry-run"])?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success() && text.contains("subject twinprobe.node-0.p"),
        "{text}"
    );
    ensure!(
        text.contains("/p/TABLE/date=") && text.contains("1 windows"),
        "{text}"
    );
    // The first window of the probe is shown as each receiver gets it: rows, or the document.
    ensure!(
        text.contains("\n    ingress.packets: key=0, ") && text.contains("\n    {\"probe\":\"p\""),
        "{text}"
    );
    ensure!(text.lines().all(|line| line.len() < 300), "{text}");
    ensure!(node.unacknowledged() == 1 && !windows.exists());
    // A rule is shown with the windows that it would judge. The URL of a notification may be a
    // secret.
    let rule = directory.path().join("busy.yaml");
    let url = "https://hooks.example/hunter2";
    let document = json!({ "watch": "p", "scope": "fleet", "when": "count(ingress.packets) > 0.0", "do": [{ "notify": url }] });
    std::fs::write(&rule, document.to_string())?;
    let rule = rule.display().to_string();
    let output = stream(&[
        "--from",
        &node.url(),
        "--rules",
        &rule,
        "--name",
        COLLECTOR,
        "--dry-run",
    ])?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        text.contains("rule busy would judge 1 windows of p on 1 nodes")
            && text.contains(": notify;"),
        "{text}"
    );
    ensure!(
        output.status.success() && !text.contains("hunter2") && node.unacknowledged() == 1,
        "{text}"
    );
    let url = node.url();
    let others = [
        "--from",
        &url,
        "--to",
        &format!("file://{}", windows.display()),
        "--name",
        "billing",
    ];
    let output = stream(&[&others[..], &["--dry-run"]].concat())?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        text.contains("p is left out: its window.collectors do not name billing"),
        "{text}"
    );
    let output = stream(&[&others[..], &["--once"]].concat())?;
    let error = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.success() && error.contains("sent 0 windows"),
        "{error}"
    );
    Ok(())
}

/// A probe without collectors: anybody acknowledges. Two receivers get all of its windows.
#[test]
fn all_receivers_get_the_windows_of_a_probe_that_names_no_collector() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let node = Node::new("node-0")?;
    node.deploy(&json!({}));
    for _ in 0..3 {
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
    }
    let [first, second] =
        ["first", "second"].map(|name| format!("file://{}/{name}", directory.path().display()));
    let output = stream(&["--from", &node.url(), "--to", &first, &second, "--once"])?;
    let error = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.success() && error.contains("sent 6 windows"),
        "{error}"
    );
    ensure!(node.daemon().json("/v1/probes/p/windows")["windows"] == json!([]));
    for name in ["first", "second"] {
        ensure!(directory.path().join(name).join("p/windows").is_dir());
    }
    Ok(())
}

/// On a terminal, lines of the log and the progress do not share lines.
#[test]
fn progress_and_log_lines_have_their_own_lines() -> Result<()> {
    let (directory, node) = (tempfile::tempdir()?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let to = json!([{ "file": { "directory": directory.path().join("windows") } }]);
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?;
    let program = format!(
        "{} -f {} --once",
        helper("twinprobe-stream")?.display(),
        config.display()
    );
    let mut command = Command::new("script");
    let output = command
        .args(["-qec", &program, "/dev/null"])
        .stdin(Stdio::null())
        .output()?;
    let screen = String::from_utf8(output.stdout)?;
    let progress = screen
        .split(['\r', '\n'])
        .filter(|line| line.contains("sent 0 windows"));
    let progress: Vec<&str> = progress.collect();
    ensure!(output.status.success() && !progress.is_empty(), "{screen}");
    ensure!(
        progress.iter().all(|line| !line.contains("INFO")),
        "{screen:?}"
    );
    ensure!(
        screen.trim_end().ends_with("bytes)") && screen.contains("sending windows"),
        "{screen:?}"
    );
    Ok(())
}

/// The schemas that `--schema` prints take the documents, and refuse others. There is one for each
/// layout.
#[test]
fn schemas_are_those_of_the_documents() -> Result<()> {
    const SCRIPT: &str = "import json, sys, jsonschema
schema, document = map(json.loads, sys.argv[1:])
jsonschema.Draft202012Validator.check_schema(schema)
jsonschema.Draft202012Validator(schema).validate(document)";
    let is_valid = |schema: &Value, document: &Value| -> Result<bool> {
        let mut command = Command::new(tool("moto/bin/python")?);
        let output = command
            .args(["-c", SCRIPT, &schema.to_string(), &document.to_string()])
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() || error.contains("ValidationError"),
            "{error}"
        );
        Ok(output.status.success())
    };
    let directory = tempfile::tempdir()?;
    let node = Node::new("node-0")?;
    let mut generator = Generator::new(
        node.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )?;
    let mut documents = Vec::new();
    for (member, status) in MEMBERS.into_iter().zip([201, 200, 200]) {
        node.daemon()
            .put("/v1/probes/q", &counting(member))
            .expect(status);
        generator.send(10)?;
        documents.push(close(&node, "q"));
        // The next window has the same layout. The window after a replacement also has the previous
        // packets.
        close(&node, "q");
        generator.send(10)?;
    }
    let to = json!([{ "file": { "directory": directory.path().join("windows") } }]);
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?
        .display()
        .to_string();
    let output = stream(&["-f", &config, "--schema"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let schemas = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<Value>, _>>()?;
    ensure!(schemas.len() == 3, "{text}");
    for (schema, document) in schemas.iter().zip(&documents) {
        ensure!(is_valid(schema, document)?, "{schema}: {document}");
        let place = format!("/v1/probes/q/windows/{}/shape", document["window"]["seq"]);
        let shape = node.daemon().json(&place);
        ensure!(
            schema["$id"]
                == format!(
                    "urn:twinprobe:shape:{}",
                    shape["digest"].as_str().unwrap_or_default()
                )
        );
    }
    // The first layout has no member `flags`, which the second one needs.
    ensure!(!is_valid(&schemas[1], &documents[0])?);
    let list = node
        .daemon()
        .json(&format!("/v1/probes/q/windows?collector={COLLECTOR}"));
    ensure!(
        list["windows"].as_array().map(Vec::len) == Some(6),
        "{list}"
    );
    Ok(())
}
