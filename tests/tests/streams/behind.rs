//! Streams that have fallen behind: many windows come with one answer, if the daemon knows that
//! request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::servers::nats::NatsServer;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::nats::{MAKE, messages};
use crate::scene::{COLLECTOR, Node, Stream, configuration, python, stream};

/// The proxy between a stream and a daemon.
#[derive(Clone, Copy)]
enum Between {
    Nothing,
    /// A version that does not know the request for several windows.
    EarlierVersion,
    /// A proxy that cuts off this many answers with several windows, each after this many bytes.
    Cutter {
        answers: usize,
        bytes: u64,
    },
}

/// The requests that have passed.
#[derive(Default)]
struct Passed {
    several: AtomicUsize,
    single: AtomicUsize,
}

/// Passes on the requests of a socket to the daemon, one for each connection.
fn proxy(daemon: PathBuf, socket: &Path, between: Between) -> Result<Arc<Passed>> {
    let (listener, passed) = (UnixListener::bind(socket)?, Arc::<Passed>::default());
    let counts = Arc::clone(&passed);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (daemon, counts) = (daemon.clone(), Arc::clone(&counts));
            // A client that hangs up ends only its own connection.
            thread::spawn(move || pass(&client, &daemon, between, &counts));
        }
    });
    Ok(passed)
}

fn pass(mut client: &UnixStream, daemon: &Path, between: Between, passed: &Passed) -> Result<()> {
    let mut head = Vec::new();
    let mut reader = BufReader::new(client.try_clone()?);
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(reader.read_until(b'\n', &mut head)? > 0, "no request");
    }
    let text = String::from_utf8(head)?;
    let first = text.lines().next().unwrap_or_default();
    let is_several = first.contains("documents=true");
    let mut most = u64::MAX;
    if is_several {
        let before = passed.several.fetch_add(1, Ordering::SeqCst);
        match between {
            Between::Cutter { answers, bytes } if before < answers => most = bytes,
            Between::Nothing | Between::Cutter { .. } => {}
            Between::EarlierVersion => {
                let problem = json!({ "type": "about:blank", "title": "Bad Request", "status": 400,
                    "detail": "Failed to deserialize query string: unknown field `limit`" });
                let body = problem.to_string();
                write!(
                    client,
                    "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
                    content-length: {}\r\n\r\n{body}",
                    body.len()
                )?;
                return Ok(());
            }
        }
    } else if first.contains("shape=true") {
        passed.single.fetch_add(1, Ordering::SeqCst);
    }
    let mut server = UnixStream::connect(daemon)?;
    server.write_all(
        text.replacen("\r\n", "\r\nconnection: close\r\n", 1)
            .as_bytes(),
    )?;
    std::io::copy(&mut (&server).take(most), &mut client)?;
    client.shutdown(Shutdown::Both)?;
    Ok(())
}

/// A node whose windows wait, and a stream that gets them through a [`proxy`].
struct Behind {
    directory: tempfile::TempDir,
    node: Node,
    passed: Arc<Passed>,
}

const WINDOWS: usize = 150;

impl Behind {
    fn new(between: Between) -> Result<Self> {
        let (directory, node) = (tempfile::tempdir()?, Node::new("node-0")?);
        node.deploy(&json!({ "retain": 10_000, "collectors": [COLLECTOR] }));
        for _ in 0..WINDOWS {
            node.daemon()
                .request("POST", "/v1/probes/p/windows", &[], b"")
                .expect(201);
        }
        let daemon = node.daemon().directories().socket();
        let passed = proxy(daemon, &directory.path().join("proxy"), between)?;
        Ok(Self {
            directory,
            node,
            passed,
        })
    }

    fn configuration(&self, to: &Value) -> Result<String> {
        let server = format!("unix:{}", self.directory.path().join("proxy").display());
        let more = json!({ "from": { "servers": [server] } });
        Ok(
            configuration(self.directory.path(), &[&self.node], to, &more)?
                .display()
                .to_string(),
        )
    }

    /// Sends all windows to files. Returns the requests for several windows and those for one.
    fn send(&self) -> Result<(usize, usize)> {
        let to = json!([{ "file": { "directory": self.directory.path().join("windows") } }]);
        let output = stream(&["--once", "-f", &self.configuration(&to)?])?;
        let told =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && told.contains(&format!("sent {WINDOWS} windows")),
            "{told}"
        );
        ensure!(self.node.unacknowledged() == 0, "{told}");
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        Ok((count(&self.passed.several), count(&self.passed.single)))
    }
}

#[test]
fn few_requests_bring_many_windows() -> Result<()> {
    let requests = Behind::new(Between::Nothing)?.send()?;
    ensure!(requests == (2, 0), "{requests:?}");
    Ok(())
}

#[test]
fn an_earlier_daemon_gives_each_window_alone() -> Result<()> {
    let requests = Behind::new(Between::EarlierVersion)?.send()?;
    ensure!(requests == (1, WINDOWS), "{requests:?}");
    Ok(())
}

/// Each of these answers breaks off in a different window. The next one continues after the last
/// whole window.
#[test]
fn an_answer_that_breaks_off_loses_and_doubles_nothing() -> Result<()> {
    let behind = Behind::new(Between::Cutter {
        answers: 6,
        bytes: 14_000,
    })?;
    let (several, single) = behind.send()?;
    ensure!(several > 6 && single == 0, "{several}, {single}");
    Ok(())
}

/// The daemon dies while its answer is under way.
#[test]
fn a_daemon_that_dies_within_an_answer_continues_where_it_was() -> Result<()> {
    let mut behind = Behind::new(Between::Nothing)?;
    let server = NatsServer::new(&behind.directory.path().join("nats"))?;
    python(MAKE, &[&server.url()])?;
    let to =
        json!([{ "nats": { "servers": [server.url()], "stream": "WINDOWS", "create": false } }]);
    let config = behind.configuration(&to)?;
    let running = Stream::start(Path::new(&config))?;
    wait_for("a request", PATIENCE, || {
        ensure!(behind.passed.several.load(Ordering::SeqCst) > 0);
        Ok(())
    })?;
    behind.node.kill_daemon()?;
    wait_for("the windows", PATIENCE, || {
        let left = behind.node.unacknowledged();
        ensure!(left == 0, "{left} are left: {}", running.log());
        Ok(())
    })?;
    running.terminate()?;
    let seqs: Vec<Value> = messages(&server)?
        .iter()
        .map(|message| message[2].clone())
        .collect();
    let expected: Vec<Value> = (1..=WINDOWS).map(Value::from).collect();
    ensure!(seqs == expected, "{seqs:?}");
    Ok(())
}
