//! Connections that take too long, and connections that find no room.

use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use twinprobe_tests::attachments::FewFiles;
use twinprobe_tests::timed;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{Scene, answer, until_closed};

const SHORT: &str = "--header-timeout 1 --body-timeout 1 --write-timeout 1 --idle-timeout 1";
/// The time within which a limit of one second must end a connection on a busy machine.
const SOON: Duration = PATIENCE;
/// A request whose answer does not fit into the buffers of a connection.
const LARGE: &str = "GET /v1/probes/p/metrics HTTP/1.1\r\nconnection: close";

/// Begins to take a large answer: the connection has a request under way until the rest is taken.
fn begun(scene: &Scene) -> Result<UnixStream> {
    let mut stream = scene.begin(LARGE)?;
    stream.write_all(b"\r\n")?;
    let mut first = [0; 100];
    stream.read_exact(&mut first)?;
    ensure!(
        first.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&first)
    );
    Ok(stream)
}

/// Tells whether the rest of a large answer is whole.
fn is_whole(stream: UnixStream) -> Result<bool> {
    Ok(until_closed(stream)?.ends_with(b"\r\n0\r\n\r\n"))
}

#[test]
fn half_a_head_is_not_waited_for() -> Result<()> {
    let scene = Scene::new(SHORT)?;
    let silent = scene.connect()?;
    let begun = Instant::now();
    assert_eq!(until_closed(silent)?, b"");
    assert!(
        begun.elapsed() >= Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );
    // Bytes that arrive slowly do not extend the time.
    let mut slow = scene.begin("GET /healthz HTTP/1.1")?;
    let begun = Instant::now();
    while slow.write_all(b"x").is_ok() {
        assert!(begun.elapsed() < SOON, "the head may take for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(scene.sample("twinprobe_http_connections_cut_total{reason=\"head_timeout\"}") >= 2);
    Ok(())
}

#[test]
fn idle_connections_end_and_long_polls_do_not() -> Result<()> {
    let scene = Scene::new(SHORT)?;
    let mut poll = scene.begin("GET /v1/probes/p/windows?wait=4 HTTP/1.1")?;
    poll.write_all(b"\r\n")?;
    let mut idle = scene.begin("GET /healthz HTTP/1.1")?;
    idle.write_all(b"\r\n")?;
    assert_eq!(answer(&idle)?.status, 200);
    let begun = Instant::now();
    assert_eq!(until_closed(idle)?, b"");
    assert!(
        begun.elapsed() >= Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(answer(poll)?.status, 200, "a request may take its time");
    Ok(())
}

#[test]
fn a_body_that_does_not_come_is_told_so() -> Result<()> {
    let scene = Scene::new(SHORT)?;
    let mut slow = scene.begin("PUT /v1/probes/q HTTP/1.1")?;
    slow.write_all(b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n{")?;
    let refused = answer(slow)?;
    assert_eq!(refused.status, 408);
    assert!(
        refused.text().contains("--body-timeout"),
        "{}",
        refused.text()
    );
    Ok(())
}

/// A client that takes nothing, or next to nothing, of its answer keeps neither the connection nor
/// the window.
#[test]
fn answers_that_nobody_takes_are_given_up() -> Result<()> {
    let scene = Scene::new(SHORT)?;
    let stalled = begun(&scene)?;
    wait_for("the end of the connection", SOON, || {
        // A look at the counters would take the window.
        ensure!(scene.daemon.connections() == 0, "it is open");
        Ok(())
    })?;
    assert!(!is_whole(stalled)?);
    // The next client reads and gets the window.
    let document = scene.daemon.json("/v1/probes/p/metrics");
    assert_eq!(document["window"]["seq"], 1);
    assert_eq!(
        scene.sample("twinprobe_http_connections_cut_total{reason=\"write_timeout\"}"),
        1
    );
    Ok(())
}

#[test]
fn those_who_ask_for_nothing_make_room_and_requests_are_not_cut_off() -> Result<()> {
    let scene = Scene::new("--max-connections 4")?;
    let silent: Vec<_> = (0..4).map(|_| scene.connect()).collect::<Result<_>>()?;
    let mut taken = (0..4).map(|_| begun(&scene)).collect::<Result<Vec<_>>>()?;
    for silent in silent {
        assert_eq!(until_closed(silent)?, b"");
    }
    // One client waits for a word, another has sent its request before it reads.
    let refused = answer(scene.connect()?)?;
    assert_eq!(refused.status, 429);
    assert!(
        refused.text().contains("--max-connections)"),
        "{}",
        refused.text()
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        scene.daemon.get("/healthz").expect(429).json()["status"],
        429
    );
    drop(taken.pop());
    wait_for("a place", SOON, || {
        ensure!(
            scene
                .daemon
                .try_request("GET", "/healthz", &[], b"")?
                .status
                == 200,
            "none"
        );
        Ok(())
    })?;
    assert!(scene.sample("twinprobe_http_connections_cut_total{reason=\"refused\"}") >= 2);
    for taken in taken {
        assert!(is_whole(taken)?);
    }
    Ok(())
}

/// The last descriptor is for a client that connects, and the client keeps it: no other client
/// waits.
#[test]
fn a_client_with_the_last_descriptor_keeps_it() -> Result<()> {
    let scene = Scene::new("")?;
    wait_for("the end of earlier connections", SOON, || {
        ensure!(scene.daemon.connections() == 0, "one is open");
        Ok(())
    })?;
    let limit = FewFiles::one(&scene.daemon)?;
    let mut stream = scene.connect()?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let silent = stream.read(&mut [0]);
    ensure!(
        silent
            .as_ref()
            .is_err_and(|error| error.kind() == WouldBlock),
        "{silent:?}"
    );
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    assert_eq!(answer(stream)?.status, 200);
    drop(limit);
    assert_eq!(
        scene.sample("twinprobe_http_connections_cut_total{reason=\"evicted\"}"),
        0
    );
    Ok(())
}

/// A client without a credential that sends a body slowly takes no place from other clients.
#[test]
fn refused_bodies_make_room() -> Result<()> {
    let scene = Scene::new("--listen 127.0.0.1:0 --insecure --max-connections 8")?;
    let slow = || -> Result<TcpStream> {
        let mut stream = scene.connect_tcp(0)?;
        write!(
            stream,
            "PUT /v2 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n"
        )?;
        Ok(stream)
    };
    let mut streams = (0..8).map(|_| slow()).collect::<Result<Vec<_>>>()?;
    for _ in 0..20 {
        for stream in &mut streams {
            // A client whose connection was closed to make room connects again.
            if stream.write_all(b" ").is_err() {
                *stream = slow()?;
            }
        }
        assert_eq!(scene.request_tcp(0, "GET", "/healthz")?.status, 200);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(scene.sample("twinprobe_http_connections_cut_total{reason=\"evicted\"}") >= 1);
    Ok(())
}

/// Scrapers need no credential: they take no places of clients with credentials.
#[test]
fn scrapers_have_places_of_their_own() -> Result<()> {
    let scene = Scene::new(
        "--listen 127.0.0.1:0 --listen-metrics 127.0.0.1:0 --insecure --max-connections 16",
    )?;
    // The page has the window's rows, and does not fit into the buffers of a connection.
    scene
        .daemon
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let mut statuses = Vec::new();
    let mut slow = Vec::new();
    for _ in 0..16 {
        let mut stream = scene.connect_tcp(1)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")?;
        let mut first = [0; 12];
        stream.read_exact(&mut first)?;
        statuses.push(String::from_utf8_lossy(&first[9..]).into_owned());
        slow.push(stream);
    }
    assert_eq!(
        statuses.iter().filter(|status| *status == "200").count(),
        2,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| *status == "429").count(),
        14,
        "{statuses:?}"
    );
    assert_eq!(scene.request_tcp(0, "GET", "/healthz")?.status, 200);
    scene.daemon.get("/healthz").expect(200);
    Ok(())
}

#[test]
fn one_client_takes_no_place_of_others() -> Result<()> {
    let scene = Scene::new("--listen 127.0.0.1:0 --insecure --max-connections-per-client 2")?;
    let _taken = [begun(&scene)?, begun(&scene)?];
    let refused = answer(scene.connect()?)?;
    assert!(
        refused.status == 429 && refused.text().contains("--max-connections-per-client"),
        "{refused:?}"
    );
    assert_eq!(scene.request_tcp(0, "GET", "/healthz")?.status, 200);
    Ok(())
}

#[test]
fn a_stop_waits_for_requests() -> Result<()> {
    stop_beside_a_request().map(drop)
}

#[timed("a stop that waits for idle connections, too, takes 5 s")]
fn a_stop_waits_for_nobody_else() -> Result<()> {
    let took = stop_beside_a_request()?;
    assert!(took < Duration::from_secs(3), "{took:?}");
    Ok(())
}

/// Stops a daemon that has a request, and connections without one. Returns how long that took.
fn stop_beside_a_request() -> Result<Duration> {
    let scene = Scene::new("")?;
    let _silent = scene.connect()?;
    let _half = scene.begin("GET /healthz HTTP/1.1")?;
    let mut idle = scene.begin("GET /healthz HTTP/1.1")?;
    idle.write_all(b"\r\n")?;
    assert_eq!(answer(&idle)?.status, 200);
    let taken = begun(&scene)?;
    let begun = Instant::now();
    let rest = std::thread::spawn(move || is_whole(taken));
    let (status, _directories) = scene.daemon.terminate()?;
    let took = begun.elapsed();
    assert!(status.success(), "{status}");
    assert!(rest.join().expect("no panic")?);
    Ok(took)
}
