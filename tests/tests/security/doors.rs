//! The requirements for each request of any sender: hosts, origins and content types.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::json;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Response, Topology, binary};

use crate::guarded::{Scene, Token};

/// A page of another server sends its own name in `Host` or `Origin`, with any credential of the
/// browser.
#[test]
fn pages_of_other_servers_are_refused() -> Result<()> {
    let token = Token::new("a", "admin")?;
    let scene = Scene::new(
        &[&token],
        DaemonOptions::default()
            .argument("--host")
            .argument("probe.example"),
    )?;
    let (name, value) = token.header();
    let status = |headers: &[(&str, &str)]| {
        let headers = [&[(name, &*value)], headers].concat();
        scene.over_tcp("GET", "/v1/probes", &headers, b"").status
    };
    let port = scene.tcp.port();
    for host in [
        "127.0.0.1",
        &format!("localhost:{port}"),
        "probe.example",
        "PROBE.example:1",
        &scene.tcp.to_string(),
    ] {
        assert_eq!(status(&[("host", host)]), 200, "{host}");
    }
    for host in [
        "evil.example",
        "",
        "127.0.0.1.evil.example",
        "10.9.9.9",
        "probe.example.evil",
        "127.0.0.1@evil.example",
    ] {
        assert_eq!(status(&[("host", host)]), 421, "{host}");
        let nobody = scene.over_tcp("PUT", "/v1/probes/p", &[("host", host)], b"{}");
        assert_eq!(nobody.status, 421, "{host}");
    }
    for second in ["evil.example", "127.0.0.1", "localhost"] {
        assert_eq!(
            status(&[("host", "127.0.0.1"), ("host", second)]),
            421,
            "{second}"
        );
    }
    for origin in [
        format!("http://127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
    ] {
        assert_eq!(status(&[("origin", &origin)]), 200, "{origin}");
    }
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost:1",
        "https://probe.example.evil",
    ] {
        assert_eq!(status(&[("origin", origin)]), 403, "{origin}");
    }
    // Browsers reach no Unix socket.
    let foreign = [("host", "evil.example"), ("origin", "http://evil.example")];
    scene
        .daemon
        .request("GET", "/v1/probes", &foreign, b"")
        .expect(200);
    Ok(())
}

#[test]
fn bodies_are_json_or_yaml() -> Result<()> {
    let scene = Scene::new(&[], DaemonOptions::default())?;
    let send = |method: &str, path: &str, content_type: &str, body: &str| -> Response {
        scene.daemon.request(
            method,
            path,
            &[("content-type", content_type)],
            body.as_bytes(),
        )
    };
    let config = counter_config("mon0", "XDP_PASS");
    let text = config.to_string();
    // A browser sends the first three types without a preflight request.
    for other in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "application/jsonx",
        "text/plain; application/json",
        "application/octet-stream",
        "application/json, text/plain",
    ] {
        for (method, path) in [
            ("PUT", "/v1/probes/p"),
            ("POST", "/v1/validate"),
            ("POST", "/v1/probes/p/windows"),
            ("POST", "/v1/probes/p/rollback"),
            ("DELETE", "/v1/probes/p"),
        ] {
            assert_eq!(
                send(method, path, other, &text).status,
                415,
                "{method} {path} of {other}"
            );
        }
    }
    scene.daemon.get("/v1/probes/p").expect(404);
    for json in ["application/json", "Application/JSON; charset=utf-8"] {
        send("POST", "/v1/validate", json, &text).expect(200);
    }
    // JSON is YAML as well.
    for yaml in [
        "application/yaml",
        "application/x-yaml",
        "text/yaml; charset=utf-8",
        "text/x-yaml",
    ] {
        send("POST", "/v1/validate", yaml, &text).expect(200);
    }
    let indented = config["ingress"]["source"]
        .as_str()
        .unwrap_or_default()
        .replace('\n', "\n    ");
    let yaml = format!(
        "interface: mon0\ningress:\n  source: |\n    {indented}\n  metrics:\n  - {{ name: packets, map: packets }}\n"
    );
    send("PUT", "/v1/probes/p", "application/yaml", &yaml).expect(201);
    assert_eq!(
        scene.daemon.json("/v1/probes/p")["config"]["ingress"]["metrics"][0]["name"],
        "packets"
    );
    let refused = send(
        "PUT",
        "/v1/probes/p",
        "application/yaml",
        "interface: mon0\nbogus: 1\n",
    )
    .expect(422)
    .json();
    assert_eq!(refused["errors"][0]["field"], "bogus", "{refused}");
    let broken = send(
        "PUT",
        "/v1/probes/p",
        "application/yaml",
        "interface: [mon0\n",
    )
    .expect(400)
    .json();
    assert!(broken["errors"][0]["line"].is_u64(), "{broken}");
    send("PUT", "/v1/probes/p", "application/json", &yaml).expect(400);
    send(
        "PUT",
        "/v1/probes/p",
        "application/yaml",
        &config.to_string(),
    )
    .expect(200);
    send(
        "POST",
        "/v1/probes/p/rollback",
        "application/yaml",
        "revision: 1",
    )
    .expect(200);
    assert_eq!(scene.daemon.json("/v1/probes/p")["revision"], 3);
    Ok(())
}

/// Names that are not text, and repeated parameters, are malformed everywhere.
#[test]
fn malformed_names_are_answered_as_described() -> Result<()> {
    let scene = Scene::new(&[], DaemonOptions::default())?;
    for (method, path) in [
        ("GET", "/v1/probes/%ff"),
        ("DELETE", "/v1/probes/%ff"),
        ("GET", "/v1/probes/%ff/revisions"),
        ("POST", "/v1/probes/%ff/rollback"),
        ("GET", "/v1/probes/%ff/metrics"),
        ("GET", "/v1/probes/%ff/windows"),
        ("POST", "/v1/probes/%ff/windows"),
        ("GET", "/v1/probes/%ff/windows/1"),
        ("DELETE", "/v1/probes/%ff/windows/1"),
        ("GET", "/v1/probes/%ff/events"),
        ("GET", "/v1/probes/p/events?metric=a&metric=b"),
    ] {
        // The client of the tests holds each status against the description.
        assert_eq!(
            scene.daemon.request(method, path, &[], b"").status,
            400,
            "{method} {path}"
        );
    }
    Ok(())
}

#[test]
fn a_token_needs_a_name_and_a_role() -> Result<()> {
    for arguments in [
        &["token"][..],
        &["token", "a"],
        &["token", "a", "root"],
        &["token", "a b", "viewer"],
        &["token", "", "viewer"],
        &["token", "a#", "viewer"],
    ] {
        assert_eq!(
            Command::new(binary()?)
                .args(arguments)
                .output()?
                .status
                .code(),
            Some(2),
            "{arguments:?}"
        );
    }
    let token = Token::new("ci-bot", "operator")?;
    let words: Vec<&str> = token.line.split(' ').collect();
    assert_eq!(
        (words[0], words[1], words[2].len()),
        ("ci-bot", "operator", 64)
    );
    assert_eq!(json!(token.secret.len()), 67);
    Ok(())
}

/// A group may use the socket, otherwise only the owner.
#[test]
fn a_socket_is_given_to_a_group() -> Result<()> {
    let groups = fs::read_to_string("/etc/group")?;
    let other = groups
        .lines()
        .find(|line| !line.starts_with("root:"))
        .context("a group")?;
    let fields: Vec<&str> = other.split(':').collect();
    for name in [fields[0], fields[2]] {
        let directory = tempfile::tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        // The daemon makes both directories.
        let made = directory.path().join("run/twinprobe/twinprobe.sock");
        let options = DaemonOptions::default()
            .argument("--socket-group")
            .argument(name);
        let options = options
            .argument("--listen")
            .argument(format!("unix:{}", made.display()));
        let scene = Scene::new(&[], options)?;
        for socket in [scene.daemon.directories().socket(), made.clone()] {
            let socket = fs::metadata(socket)?;
            assert_eq!(
                (socket.gid().to_string(), socket.mode() & 0o777),
                (fields[2].to_owned(), 0o660)
            );
        }
        let may_write = |user: u32, group: u32| -> Result<bool> {
            Ok(Command::new("test")
                .arg("-w")
                .arg(&made)
                .uid(user)
                .gid(group)
                .status()?
                .success())
        };
        assert!(
            may_write(65533, fields[2].parse()?)?,
            "a member of the group does not reach the socket"
        );
        assert!(!may_write(65533, 65533)?, "others reach the socket");
    }
    let topology = Topology::new()?;
    let unknown = DaemonOptions::default()
        .argument("--socket-group")
        .argument("no-such-group");
    let daemon = Daemon::spawn_in(topology.monitor(), &unknown, Arc::new(Directories::new()?))?;
    assert!(!daemon.wait_for_start(PATIENCE), "{}", daemon.log());
    assert!(
        daemon.log().contains("--socket-group no-such-group"),
        "{}",
        daemon.log()
    );
    Ok(())
}

/// The field `netns` names a path. The answer is the same for any content of the path.
#[test]
fn a_namespace_is_no_way_to_look_for_files() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let directory = tempfile::tempdir()?;
    let answer = |path: &str| -> Result<String> {
        let mut texts = Vec::new();
        for waits in [false, true] {
            let mut config = counter_config("mon0", "XDP_PASS");
            config["netns"] = json!(path);
            config["wait_for_interface"] = json!(waits);
            let put = daemon.put("/v1/probes/p", &config);
            let validated = daemon.post("/v1/validate", &config);
            texts.push(format!(
                "{} {} {} {}",
                put.status,
                put.text(),
                validated.status,
                validated.text()
            ));
            if put.status == 201 {
                texts.push(daemon.json("/v1/probes/p")["interfaces"].to_string());
                daemon.delete("/v1/probes/p").expect(204);
            }
        }
        Ok(texts.join("\n").replace(path, "PATH"))
    };
    let there = directory.path().join("there");
    fs::write(&there, "")?;
    let absent = answer("/root/absent")?;
    assert!(
        absent.contains("not a place of network namespaces"),
        "{absent}"
    );
    for path in [
        "/etc/shadow",
        "/dev/null",
        "/run/netns/../../etc/shadow",
        "/proc/1/root/etc/shadow",
        "/proc/1/ns/mnt",
        there.to_str().context("a path")?,
        directory.path().join("absent").to_str().context("a path")?,
    ] {
        assert_eq!(answer(path)?, absent, "{path}");
    }
    let process = std::process::id();
    assert_ne!(answer(&format!("/proc/{process}/ns/net"))?, absent);
    let absent = answer("/run/netns/tp-absent")?
        .lines()
        .next()
        .map(str::to_owned);
    let ended = answer("/proc/999999999/ns/net")?
        .lines()
        .next()
        .map(str::to_owned);
    assert_eq!(ended, absent);
    Ok(())
}
