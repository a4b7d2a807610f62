//! The audit log: who did what, from where.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::DaemonOptions;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::guarded::{Scene, Token};

fn lines(path: &Path) -> Result<Vec<Value>> {
    fs::read_to_string(path)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn sha256(text: &str) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), text)?;
    let out = String::from_utf8(Command::new("sha256sum").arg(file.path()).output()?.stdout)?;
    out.split(' ').next().map(str::to_owned).context("a digest")
}

#[test]
fn every_request_is_recorded_and_no_secret() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("audit.log");
    let token = Token::new("ci-bot", "operator")?;
    let options = DaemonOptions::default().argument("--audit-log").argument(&path);
    let scene = Scene::new(&[&token], options)?;
    let (name, value) = token.header();
    let config = counter_config("mon0", "XDP_PASS");
    let digest = sha256(config["ingress"]["source"].as_str().context("a source")?)?;
    let ask = |method: &str, path: &str, body: &str| {
        scene.over_tcp(method, path, &[(name, &value)], body.as_bytes()).status
    };
    let mut refused = config.clone();
    refused["ingress"]["verdict"] = json!("enforce");
    let odd = "/v1/probes/a%0A%7B%22who%22%3A%22x%22%7D%E2%80%A8";
    let expected = [
        ("PUT", "/v1/probes/p", config.to_string(), 201, "p"),
        ("PUT", "/v1/probes/p", refused.to_string(), 403, "p"),
        ("GET", "/v1/probes/p/metrics?secret=1", String::new(), 200, "p"),
        ("GET", odd, String::new(), 404, "a\n{\"who\":\"x\"}\u{2028}"),
        ("DELETE", "/v1/probes/p", String::new(), 204, "p"),
    ];
    for (method, path, body, status, _) in &expected {
        assert_eq!(ask(method, path, body), *status, "{method} {path}");
    }
    scene.over_tcp("DELETE", "/v1/probes/q", &[("authorization", "Bearer tp_wrong-secret")], b"").expect(401);
    scene.daemon.put("/v1/probes/p", &config).expect(201);

    let found = lines(&path)?;
    assert_eq!(found.len(), expected.len() + 2, "{found:#?}");
    for ((method, path, body, status, probe), line) in expected.iter().zip(&found) {
        assert_eq!((&line["who"], &line["role"]), (&json!("token:ci-bot"), &json!("operator")), "{line}");
        assert!(
            line["from"]["address"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")),
            "{line}"
        );
        assert_eq!(line["what"], format!("{method} {}", path.split('?').next().unwrap_or_default()));
        assert_eq!((&line["probe"], &line["outcome"]), (&json!(probe), &json!(status)), "{line}");
        let sources = if body.is_empty() { json!({}) } else { json!({ "ingress": digest }) };
        assert_eq!(line["sources"], sources, "{line}");
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    }
    let [nobody, local] = &found[expected.len()..] else { panic!("two more") };
    assert_eq!(
        (&nobody["who"], &nobody["outcome"], &nobody["probe"]),
        (&Value::Null, &json!(401), &json!("q"))
    );
    let pid = std::process::id();
    assert_eq!(local["from"], json!({ "uid": 0, "gid": 0, "pid": pid }), "{local}");
    assert_eq!((&local["who"], &local["role"]), (&json!("uid:0"), &json!("admin")));
    assert_eq!(scene.daemon.json("/v1/probes/p")["pushed_by"], "uid:0");
    let text = fs::read_to_string(&path)? + &scene.daemon.log();
    for secret in [&token.secret, "tp_wrong-secret", "secret=1"] {
        assert!(!text.contains(secret), "{secret} is in a log");
    }

    // A renamed file is complete, and the next one begins with SIGHUP.
    let old = directory.path().join("audit.old");
    fs::rename(&path, &old)?;
    scene.reload()?;
    scene.daemon.get("/healthz").expect(200);
    assert_eq!(lines(&path)?.len(), 1);
    assert_eq!(lines(&old)?.len(), found.len() + 1);
    Ok(())
}

/// A client that hangs up before the answer has asked all the same.
#[test]
fn a_client_that_hangs_up_is_recorded() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("audit.log");
    let token = Token::new("ci-bot", "operator")?;
    let scene = Scene::new(&[&token], DaemonOptions::default().argument("--audit-log").argument(&path))?;
    let (name, value) = token.header();
    // The compiler needs all of its time for these macros.
    let doubled: String = (1..40).map(|n| format!("#define A{n} A{0} A{0}\n", n - 1)).collect();
    let source = format!("#define A0 x;\n{doubled}A39\n");
    let body = json!({ "interface": "mon0", "ingress": { "source": source } }).to_string();
    let length = body.len();
    let mut stream = scene.namespace().enter(|| TcpStream::connect(scene.tcp))??;
    write!(
        stream,
        "PUT /v1/probes/p HTTP/1.1\r\nhost: localhost\r\n{name}: {value}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )?;
    let children = format!("/proc/{0}/task", scene.daemon.pid());
    wait_for("the compiler", PATIENCE, || {
        let mut tasks = fs::read_dir(&children)?.flatten();
        let has_child = |task: fs::DirEntry| {
            fs::read_to_string(task.path().join("children")).is_ok_and(|children| !children.is_empty())
        };
        ensure!(tasks.any(has_child), "no child");
        Ok(())
    })?;
    assert_eq!(lines(&path)?.len(), 0);
    drop(stream);
    wait_for("a line", PATIENCE, || {
        let found = lines(&path)?;
        let put = found.iter().find(|line| line["what"] == "PUT /v1/probes/p").context("none")?;
        ensure!(put["who"] == "token:ci-bot" && put["outcome"].is_null(), "{put}");
        ensure!(put["sources"]["ingress"].is_string(), "{put}");
        Ok(())
    })
}
