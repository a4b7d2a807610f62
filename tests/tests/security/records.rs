//! The audit log: each action, its author and its origin.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{DaemonOptions, Tmpfs};

use crate::guarded::{Scene, Token};

fn lines(path: &Path) -> Result<Vec<Value>> {
    fs::read_to_string(path)?
        .lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
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
    let options = DaemonOptions::default()
        .argument("--audit-log")
        .argument(&path);
    let scene = Scene::new(&[&token], options)?;
    let (name, value) = token.header();
    let config = counter_config("mon0", "XDP_PASS");
    let digest = sha256(config["ingress"]["source"].as_str().context("a source")?)?;
    let ask = |method: &str, path: &str, body: &str| {
        scene
            .over_tcp(method, path, &[(name, &value)], body.as_bytes())
            .status
    };
    let mut refused = config.clone();
    refused["ingress"]["verdict"] = json!("enforce");
    let odd = "/v1/probes/a%0A%7B%22who%22%3A%22x%22%7D%E2%80%A8";
    let expected = [
        ("PUT", "/v1/probes/p", config.to_string(), 201, "p"),
        ("PUT", "/v1/probes/p", refused.to_string(), 403, "p"),
        (
            "GET",
            "/v1/probes/p/metrics?secret=1",
            String::new(),
            200,
            "p",
        ),
        ("GET", odd, String::new(), 404, "a\n{\"who\":\"x\"}\u{2028}"),
        ("DELETE", "/v1/probes/p", String::new(), 204, "p"),
    ];
    for (method, path, body, status, _) in &expected {
        assert_eq!(ask(method, path, body), *status, "{method} {path}");
    }
    scene
        .over_tcp(
            "DELETE",
            "/v1/probes/q",
            &[("authorization", "Bearer tp_wrong-secret")],
            b"",
        )
        .expect(401);
    scene.daemon.put("/v1/probes/p", &config).expect(201);

    let found = lines(&path)?;
    assert_eq!(found.len(), expected.len() + 2, "{found:#?}");
    for ((method, path, body, status, probe), line) in expected.iter().zip(&found) {
        assert_eq!(
            (&line["who"], &line["role"]),
            (&json!("token:ci-bot"), &json!("operator")),
            "{line}"
        );
        assert!(
            line["from"]["address"]
                .as_str()
                .is_some_and(|from| from.starts_with("127.0.0.1:")),
            "{line}"
        );
        assert_eq!(
            line["what"],
            format!("{method} {}", path.split('?').next().unwrap_or_default())
        );
        assert_eq!(
            (&line["probe"], &line["outcome"]),
            (&json!(probe), &json!(status)),
            "{line}"
        );
        let sources = if body.is_empty() {
            json!({})
        } else {
            json!({ "ingress": digest })
        };
        assert_eq!(line["sources"], sources, "{line}");
        assert!(
            line["time"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z')),
            "{line}"
        );
    }
    let [nobody, local] = &found[expected.len()..] else {
        panic!("two more")
    };
    assert_eq!(
        (&nobody["who"], &nobody["outcome"], &nobody["probe"]),
        (&Value::Null, &json!(401), &json!("q"))
    );
    let pid = std::process::id();
    let program = fs::read_to_string("/proc/self/comm")?;
    let mut from =
        json!({ "uid": 0, "gid": 0, "pid": pid, "user": "root", "program": program.trim_end() });
    if let Some(login) = local["from"].get("login") {
        from["login"] = login.clone();
    }
    assert_eq!(local["from"], from, "{local}");
    assert_eq!(
        (&local["who"], &local["role"]),
        (&json!("uid:0"), &json!("admin"))
    );
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

/// A client that hangs up before the answer also has a record.
#[test]
fn a_client_that_hangs_up_is_recorded() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("audit.log");
    let token = Token::new("ci-bot", "operator")?;
    let scene = Scene::new(
        &[&token],
        DaemonOptions::default()
            .argument("--audit-log")
            .argument(&path),
    )?;
    let (name, value) = token.header();
    // The compiler needs all of its time for these macros.
    let doubled: String = (1..40)
        .map(|n| format!("#define A{n} A{0} A{0}\n", n - 1))
        .collect();
    let source = format!("#define A0 x;\n{doubled}A39\n");
    let body = json!({ "interface": "mon0", "ingress": { "source": source } }).to_string();
    let length = body.len();
    let mut stream = scene
        .namespace()
        .enter(|| TcpStream::connect(scene.tcp))??;
    write!(
        stream,
        "PUT /v1/probes/p HTTP/1.1\r\nhost: localhost\r\n{name}: {value}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )?;
    let children = format!("/proc/{0}/task", scene.daemon.pid());
    wait_for("the compiler", PATIENCE, || {
        let mut tasks = fs::read_dir(&children)?.flatten();
        let has_child = |task: fs::DirEntry| {
            fs::read_to_string(task.path().join("children"))
                .is_ok_and(|children| !children.is_empty())
        };
        ensure!(tasks.any(has_child), "no child");
        Ok(())
    })?;
    assert_eq!(lines(&path)?.len(), 0);
    drop(stream);
    wait_for("a line", PATIENCE, || {
        let found = lines(&path)?;
        let put = found
            .iter()
            .find(|line| line["what"] == "PUT /v1/probes/p")
            .context("none")?;
        ensure!(
            put["who"] == "token:ci-bot" && put["outcome"].is_null(),
            "{put}"
        );
        ensure!(put["sources"]["ingress"].is_string(), "{put}");
        Ok(())
    })
}

/// Clients without a credential, and clients that only read, leave room for the record of changes.
#[test]
fn refusals_fill_no_disk_and_changes_are_recorded() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = Tmpfs::mount(&directory.path().join("disk"), 256 << 10)?;
    let path = directory.path().join("disk/audit.log");
    let token = Token::new("ci-bot", "operator")?;
    let scene = Scene::new(
        &[&token],
        DaemonOptions::default()
            .argument("--audit-log")
            .argument(&path),
    )?;
    let (name, value) = token.header();
    let long = "x".repeat(500);
    for n in 0..800 {
        scene
            .over_tcp("PUT", &format!("/v1/probes/{n}{long}"), &[], b"")
            .expect(401);
    }
    let found = lines(&path)?;
    ensure!(
        found.len() == 1 && found[0]["outcome"] == 401 && found[0]["reason"] == "no_credential",
        "{found:?}"
    );
    // The counts are written when the file is opened again, and after a minute.
    scene.reload()?;
    let found = lines(&path)?;
    ensure!(found.len() == 2 && found[1]["repeated"] == 799, "{found:?}");
    // Requests with a credential have a line each, and leave some room.
    for _ in 0..800 {
        scene
            .over_tcp("GET", &format!("/v1/probes/{long}"), &[(name, &value)], b"")
            .expect(404);
    }
    scene
        .daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    scene.daemon.delete("/v1/probes/p").expect(204);
    let found = lines(&path)?;
    let changes: Vec<&Value> = found
        .iter()
        .filter(|line| line["role"] == "admin")
        .collect();
    ensure!(
        changes.len() == 2 && changes[0]["outcome"] == 201 && changes[1]["outcome"] == 204,
        "{changes:?}"
    );
    ensure!(
        found.iter().any(|line| line["left_out"].as_u64() > Some(0)),
        "what is missing is told"
    );
    drop((scene, disk));
    Ok(())
}

/// With `--audit-required` a change has a record before it is made, or is not made.
#[test]
fn changes_that_cannot_be_recorded_are_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = Tmpfs::mount(&directory.path().join("disk"), 256 << 10)?;
    let path = directory.path().join("disk/audit.log");
    let options = DaemonOptions::default()
        .argument("--audit-log")
        .argument(&path)
        .argument("--audit-required");
    let scene = Scene::new(&[], options)?;
    let config = counter_config("mon0", "XDP_PASS");
    scene.daemon.put("/v1/probes/p", &config).expect(201);
    let found = lines(&path)?;
    ensure!(found.len() == 2, "{found:?}");
    ensure!(
        found[0]["begun"] == true && found[0]["outcome"].is_null() && found[0]["probe"] == "p",
        "{found:?}"
    );
    ensure!(
        found[1]["outcome"] == 201 && found[1]["sources"]["ingress"].is_string(),
        "{found:?}"
    );

    disk.fill()?;
    // Some lines fit into the last page of the file.
    let nothing = || scene.daemon.delete("/v1/probes/none").status;
    ensure!((0..100).any(|_| nothing() == 507), "there is room for ever");
    let before = scene.daemon.json("/v1/probes");
    let changed = counter_config("mon0", "XDP_DROP").to_string();
    for (method, target, body) in [
        ("PUT", "/v1/probes/p", &*changed),
        ("PUT", "/v1/probes/q", &*changed),
        ("DELETE", "/v1/probes/p", ""),
        ("POST", "/v1/probes/p/windows", ""),
        ("POST", "/v1/probes/p/rollback", ""),
    ] {
        let headers = [("content-type", "application/json")];
        let headers = if body.is_empty() {
            &[][..]
        } else {
            &headers[..]
        };
        let answer = scene
            .daemon
            .request(method, target, headers, body.as_bytes())
            .expect(507);
        let text = answer.text();
        ensure!(
            text.contains("--audit-required") && text.contains("nothing was changed"),
            "{text}"
        );
    }
    scene.daemon.post("/v1/validate", &config).expect(200);
    let now = scene.daemon.json("/v1/probes");
    ensure!(now["probes"].as_array().map(Vec::len) == Some(1), "{now}");
    for field in ["revision", "windows"] {
        ensure!(
            now["probes"][0][field] == before["probes"][0][field],
            "{field}: {now}"
        );
    }
    scene.daemon.get("/v1/probes/p/metrics").expect(200);
    disk.free()?;
    scene.daemon.delete("/v1/probes/p").expect(204);
    // The lines after an incomplete line are complete.
    let text = fs::read_to_string(&path)?;
    let last: Value = serde_json::from_str(text.lines().last().context("a line")?)?;
    ensure!(
        last["outcome"] == 204 && last["what"] == "DELETE /v1/probes/p",
        "{last}"
    );
    drop((scene, disk));
    Ok(())
}

/// A pipe that is not read holds up no client.
#[test]
fn a_pipe_that_is_not_read_holds_up_no_request() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("pipe");
    ensure!(
        Command::new("mkfifo").arg(&path).status()?.success(),
        "no pipe"
    );
    let options = DaemonOptions::default()
        .argument("--audit-log")
        .argument(&path)
        .argument("--audit-required");
    let scene = Scene::new(&[], options)?;
    for _ in 0..400 {
        scene.daemon.get("/v1/probes").expect(200);
    }
    // Reads have left room for changes.
    scene
        .daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let refused = (0..400)
        .map(|_| scene.daemon.delete("/v1/probes/none"))
        .find(|answer| answer.status != 404);
    let refused = refused
        .context("the pipe is full")?
        .expect(503)
        .text()
        .to_owned();
    ensure!(
        refused.contains("--audit-required") && refused.contains("read the pipe"),
        "{refused}"
    );
    scene.daemon.get("/healthz").expect(200);
    Ok(())
}

/// Requests for public files come all the time, and are not recorded; failed ones are.
#[test]
fn refusals_at_the_address_for_metrics_are_recorded() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("audit.log");
    let options = format!(
        "--listen-metrics 127.0.0.1:0 --audit-log {}",
        path.display()
    );
    let scene = crate::scene::Scene::new(&options)?;
    let ask = |path: &str, host: &str| -> Result<u16> {
        Ok(http::exchange(scene.connect_tcp(0)?, "GET", path, &[("host", host)], b"")?.status)
    };
    let count = lines(&path)?.len();
    for _ in 0..20 {
        ensure!(
            scene.request_tcp(0, "GET", "/metrics")?.status == 200,
            "it is served"
        );
        ensure!(ask("/v1/probes", "localhost")? == 404, "it is not served");
        ensure!(ask("/metrics", "elsewhere.example")? == 421, "two hosts");
    }
    let found = lines(&path)?.split_off(count);
    ensure!(found.len() == 2, "{found:?}");
    ensure!(
        found[0]["what"] == "GET /v1/probes" && found[0]["outcome"] == 404,
        "{found:?}"
    );
    ensure!(
        found[1]["reason"] == "host" && found[1]["outcome"] == 421 && found[1]["who"].is_null(),
        "{found:?}"
    );
    Ok(())
}
