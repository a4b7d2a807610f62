//! A probe that counts packets, windows that tests close, and a receiver of notifications.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology};

/// The configuration of a probe that counts packets in one number.
pub fn counter() -> Value {
    counter_config("mon0", "XDP_PASS")
}

/// A rule over the probe `p` that fires at five packets and ends below them.
pub fn rule(actions: &Value) -> Value {
    json!({
        "watch": "p",
        "when": "sum(ingress.packets) >= 5",
        "until": "sum(ingress.packets) < 5",
        "cooldown": "0s",
        "do": actions,
    })
}

/// An action that deploys a counter without interfaces of its own.
pub fn deploys(name: &str) -> Value {
    let mut config = counter();
    config
        .as_object_mut()
        .expect("an object")
        .remove("interface");
    json!({ "apply": { "name": name, "config": config, "expires": "10m" } })
}

pub fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

pub fn close(daemon: &Daemon) {
    daemon
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
}

/// Closes a window, and waits until the daemon has died. With `again`, it closes another one after
/// the firing of the rule `many`.
pub fn close_until_death(daemon: &Daemon, again: bool) -> Result<()> {
    // The daemon may die before it answers.
    let close_one = || drop(daemon.try_request("POST", "/v1/probes/p/windows", &[], b""));
    close_one();
    if again {
        wait_for("the firing", PATIENCE, || {
            let status = daemon
                .try_request("GET", "/v1/rules/many", &[], b"")?
                .json();
            ensure!(status["firings"][0]["done"].is_string(), "{status}");
            Ok(())
        })?;
        close_one();
    }
    wait_for("the end of the daemon", PATIENCE, || {
        ensure!(
            daemon.try_request("GET", "/healthz", &[], b"").is_err(),
            "it runs"
        );
        Ok(())
    })
}

/// Waits until `is` accepts the status of the rule.
pub fn wait_for_rule(daemon: &Daemon, name: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut status = Value::Null;
    wait_for("the rule", PATIENCE, || {
        status = daemon.json(&format!("/v1/rules/{name}"));
        ensure!(is(&status), "{status}");
        Ok(())
    })?;
    Ok(status)
}

/// A notification that came, with its headers in lower case.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl ReceivedMessage {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A receiver of notifications, which remembers them and their identities.
#[derive(Clone)]
pub struct Receiver {
    pub address: SocketAddr,
    pub identities: Arc<Mutex<Vec<String>>>,
    pub messages: Arc<Mutex<Vec<ReceivedMessage>>>,
}

impl Receiver {
    /// Listens in the namespace of the daemon until the test ends.
    pub fn new(topology: &Topology) -> Result<Self> {
        topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
        Self::at(topology, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Listens at this address.
    pub fn at(topology: &Topology, address: SocketAddr) -> Result<Self> {
        let listener = topology.monitor().enter(|| TcpListener::bind(address))??;
        let address = listener.local_addr()?;
        let receiver = Self {
            address,
            identities: Arc::default(),
            messages: Arc::default(),
        };
        let remembers = receiver.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A daemon that is killed hangs up in the middle.
                let _ = remembers.answer(stream);
            }
        });
        Ok(receiver)
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    fn answer(&self, stream: std::net::TcpStream) -> Result<()> {
        let mut stream = BufReader::new(stream);
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            ensure!(stream.read_line(&mut line)? > 0, "the head ends early");
            match line.trim_end() {
                "" => break,
                line => headers.extend(
                    line.split_once(": ")
                        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())),
                ),
            }
        }
        let mut message = ReceivedMessage {
            headers,
            body: Vec::new(),
        };
        message.body = vec![
            0;
            message
                .header("content-length")
                .context("a length")?
                .parse()?
        ];
        stream.read_exact(&mut message.body)?;
        let identity = message
            .header("idempotency-key")
            .context("an identity")?
            .to_owned();
        self.identities.lock().expect("no panic").push(identity);
        self.messages.lock().expect("no panic").push(message);
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?;
        Ok(())
    }
}
