//! The addresses of the daemon, its access rules, and its audit log.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Namespace};

use crate::scene::Scene;

const LIMIT: Duration = PATIENCE;

/// Access to the port does not prove control of the host, not even on loopback.
#[test]
fn tcp_without_credentials_is_refused() -> Result<()> {
    let here = Namespace::current()?;
    for (arguments, names) in [
        (&["--listen", "127.0.0.1:0"][..], "--tokens"),
        (&["--listen", "[::1]:0"], "--client-ca"),
        (&["--listen", "0.0.0.0:0"], "--insecure"),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--tls-cert",
                "/c",
                "--tls-key",
                "/k",
            ],
            "--tokens",
        ),
    ] {
        let options = DaemonOptions {
            arguments: arguments.iter().map(Into::into).collect(),
            ..Default::default()
        };
        let directories = Arc::new(Directories::new()?);
        let daemon = Daemon::spawn_in(&here, &options, Arc::clone(&directories))?;
        assert!(!daemon.wait_for_start(LIMIT), "{arguments:?}");
        assert!(
            daemon.wait_for_log(names, LIMIT),
            "{arguments:?}: {}",
            daemon.log()
        );
        assert!(
            !directories.socket().exists(),
            "{arguments:?}: it has begun"
        );
    }
    Ok(())
}

#[test]
fn a_socket_is_for_its_owner_and_group() -> Result<()> {
    let scene = Scene::new("")?;
    let mode = fs::metadata(scene.daemon.directories().socket())?
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o660);
    Ok(())
}

/// Scrapers need no credential, and get nothing but metrics and health.
#[test]
fn the_address_for_metrics_serves_nothing_else() -> Result<()> {
    let scene = Scene::new("--listen-metrics 127.0.0.1:0")?;
    for (method, path, status) in [
        ("GET", "/metrics", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("HEAD", "/metrics", 405),
        ("POST", "/metrics", 405),
    ] {
        assert_eq!(
            scene.request_tcp(0, method, path)?.status,
            status,
            "{method} {path}"
        );
    }
    let page = scene.request_tcp(0, "GET", "/metrics")?;
    assert!(
        page.text()
            .contains("twinprobe_probes{state=\"running\"} 1"),
        "{}",
        page.text()
    );
    for (method, path) in [
        ("GET", "/v1/probes"),
        ("GET", "/v1/probes/p"),
        ("GET", "/v1/probes/p/metrics"),
        ("PUT", "/v1/probes/q"),
        ("DELETE", "/v1/probes/p"),
        ("GET", "/v1/capabilities"),
        ("GET", "/openapi.yaml"),
        ("GET", "/"),
    ] {
        let stream = scene.connect_tcp(0)?;
        let answer = twinprobe_tests::http::exchange(stream, method, path, &[], b"")?;
        assert_eq!(answer.status, 404, "{method} {path}");
    }
    Ok(())
}

#[test]
fn each_request_has_a_number_that_the_log_shows() -> Result<()> {
    let scene = Scene::new("")?;
    let id = |headers: &[(&str, &str)]| {
        let answer = scene
            .daemon
            .request("GET", "/v1/probes/nosuch", headers, b"")
            .expect(404);
        answer.header("x-request-id").unwrap_or_default().to_owned()
    };
    let ids = [
        id(&[]),
        id(&[]),
        id(&[("x-request-id", "ours-7")]),
        id(&[("x-request-id", "a b\" c")]),
    ];
    assert_eq!(ids[2], "ours-7");
    assert!(!ids[3].contains(' ') && !ids[3].is_empty(), "{ids:?}");
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        assert!(
            scene.daemon.wait_for_log(&format!("id=\"{id}\""), LIMIT),
            "{id}: {}",
            scene.daemon.log()
        );
    }
    Ok(())
}

#[test]
fn a_hang_up_ends_no_daemon() -> Result<()> {
    let scene = Scene::new("")?;
    scene.daemon.signal(libc::SIGHUP);
    scene.daemon.get("/readyz").expect(200);
    scene
        .daemon
        .post("/v1/probes/p/windows", &().into())
        .expect(201);
    Ok(())
}
