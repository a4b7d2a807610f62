//! The probe `dns` counts by client and by server the questions that get no answer in time. The
//! test sends real frames in both directions, and reads between question and answer, so that the
//! two meet different twins.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology};

use crate::expected::{configuration, entries};

const TIMEOUT: Duration = Duration::from_secs(3);
const SERVER: &str = "192.0.2.53";
const SERVER6: &str = "2001:db8::53";
const DNS: u16 = 53;

/// A question of a client: its address, its port, and the number of the message.
#[derive(Clone, Copy)]
struct Question(&'static str, u16, u16);

/// Clients at gen0, and servers in the monitored namespace.
struct Scene {
    _topology: Topology,
    daemon: Daemon,
    clients: PacketSocket,
    servers: PacketSocket,
}

impl Scene {
    fn new(hook: &str, defines: &Value) -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let mut config = configuration("dns", hook)?;
        for direction in ["ingress", "egress"] {
            config[direction]["defines"] = defines.clone();
            config[direction]["defines"]["CLIENTS"] = json!("64");
        }
        daemon.put("/v1/probes/dns", &config).expect(201);
        let clients = topology
            .generator()
            .enter(|| PacketSocket::open("gen0"))??;
        let servers = topology.monitor().enter(|| PacketSocket::open("mon0"))??;
        Ok(Self {
            _topology: topology,
            daemon,
            clients,
            servers,
        })
    }

    fn ask(&self, question: Question) -> Result<()> {
        let Question(client, port, id) = question;
        Ok(self.clients.send(&frame(
            (client, port),
            (server_of(client), DNS),
            &message(id, 0x0100),
        )?)?)
    }

    fn answer(&self, question: Question) -> Result<()> {
        let Question(client, port, id) = question;
        Ok(self.servers.send(&frame(
            (server_of(client), DNS),
            (client, port),
            &message(id, 0x8180),
        )?)?)
    }

    /// Sends a frame that is not DNS: each packet makes the probe look at its clock.
    fn pass_something(&self) -> Result<()> {
        let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5].to_vec();
        frame.resize(60, 0);
        Ok(self.clients.send(&frame)?)
    }

    /// Returns a window of the probe.
    fn read(&self) -> Value {
        self.daemon.json("/v1/probes/dns/metrics")
    }

    /// Lets packets pass until as many questions of all clients have timed out, and returns that
    /// window.
    fn wait_for_timeouts(&self, wanted: u64) -> Result<Value> {
        wait_for("questions time out", PATIENCE, || {
            self.pass_something()?;
            let document = self.read();
            let found = sum(&document, "ingress", "dns_client", "timeouts_total")?;
            ensure!(
                found >= wanted,
                "{found} of {wanted}: {}",
                document["ingress"]["dns_client"]
            );
            Ok(document)
        })
    }
}

fn server_of(client: &str) -> &'static str {
    if client.contains(':') {
        SERVER6
    } else {
        SERVER
    }
}

/// A message with one question, or an answer to it without records.
fn message(id: u16, flags: u16) -> Vec<u8> {
    let head = [id, flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&head[..], b"\x03www\x07example\x00\x00\x01\x00\x01"].concat()
}

fn frame(from: (&str, u16), to: (&str, u16), message: &[u8]) -> Result<Vec<u8>> {
    let length = 8 + message.len() as u16;
    let udp = [
        [from.1, to.1, length, 0].map(u16::to_be_bytes).concat(),
        message.to_vec(),
    ]
    .concat();
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].to_vec();
    match (from.0.parse()?, to.0.parse()?) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + length).to_be_bytes());
            frame.extend([0, 1, 0, 0, 64, 17, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => anyhow::bail!("two families"),
    }
    frame.extend(udp);
    frame.resize(frame.len().max(60), 0);
    Ok(frame)
}

fn sum(document: &Value, direction: &str, metric: &str, field: &str) -> Result<u64> {
    let values = entries(document, direction, metric)?.iter();
    values
        .map(|entry| {
            entry["value"][field]
                .as_u64()
                .with_context(|| field.to_owned())
        })
        .sum()
}

/// Fails unless the row of a client or server has these values.
fn ensure_row(document: &Value, metric: &str, key: &str, wanted: &Value) -> Result<()> {
    let row = entries(document, "ingress", metric)?
        .iter()
        .find(|entry| entry["key"] == key);
    let row = row.with_context(|| format!("no {key} in {}", document["ingress"][metric]))?;
    for (field, value) in wanted.as_object().into_iter().flatten() {
        ensure!(
            row["value"][field] == *value,
            "{metric} {key} {field}: {row} instead of {wanted}"
        );
    }
    Ok(())
}

const CLIENT: &str = "192.0.2.1";
const LATE: &str = "192.0.2.2";
const SILENT6: &str = "2001:db8::1";

fn questions_without_an_answer_in_time_are_counted(hook: &str) -> Result<()> {
    let scene = Scene::new(hook, &json!({ "TIMEOUT": TIMEOUT.as_millis().to_string() }))?;
    let begun = Instant::now();
    for id in 0..40 {
        scene.ask(Question(CLIENT, 4000, id))?;
        scene.answer(Question(CLIENT, 4000, id))?;
    }
    // Two questions are under way at the same time. The first is sent three times without an
    // answer. Only the second gets its answer, in another window.
    let lost = Question(CLIENT, 4001, 7);
    let other = Question(CLIENT, 4001, 8);
    for question in [lost, other, lost, lost] {
        scene.ask(question)?;
    }
    let late = Question(LATE, 4001, 7);
    scene.ask(late)?;
    for port in 5000..5003 {
        scene.ask(Question(SILENT6, port, 7))?;
    }
    let early = scene.read();
    scene.answer(other)?;
    if begun.elapsed() < TIMEOUT {
        ensure!(
            sum(&early, "ingress", "dns_client", "timeouts_total")? == 0,
            "too early: {early}"
        );
    }
    let document = scene.wait_for_timeouts(5)?;
    ensure!(
        begun.elapsed() >= TIMEOUT,
        "{:?} is too early: {document}",
        begun.elapsed()
    );
    let client = json!({ "questions_total": 44, "repeated_total": 2, "answers_total": 41, "timeouts_total": 1,
        "late_total": 0 });
    ensure_row(&document, "dns_client", CLIENT, &client)?;
    let waits =
        json!({ "questions_total": 1, "answers_total": 0, "timeouts_total": 1, "late_total": 0 });
    ensure_row(&document, "dns_client", LATE, &waits)?;
    let silent = json!({ "questions_total": 3, "repeated_total": 0, "answers_total": 0, "timeouts_total": 3 });
    ensure_row(&document, "dns_client", SILENT6, &silent)?;
    ensure_row(
        &document,
        "dns_server",
        SERVER,
        &json!({ "answers_total": 41, "timeouts_total": 2 }),
    )?;
    ensure_row(
        &document,
        "dns_server",
        SERVER6,
        &json!({ "answers_total": 0, "timeouts_total": 3 }),
    )?;

    // A late answer does not undo the timeout. A repetition of a question that has timed out is not
    // a new question.
    scene.answer(late)?;
    scene.ask(lost)?;
    let document = wait_for("the late answer is counted", PATIENCE, || {
        let document = scene.read();
        let lates = sum(&document, "ingress", "dns_client", "late_total")?;
        let asked = sum(&document, "ingress", "dns_client", "questions_total")?;
        ensure!(lates == 1 && asked == 49, "{document}");
        Ok(document)
    })?;
    let late = json!({ "answers_total": 1, "timeouts_total": 1, "late_total": 1 });
    ensure_row(&document, "dns_client", LATE, &late)?;
    ensure_row(
        &document,
        "dns_client",
        CLIENT,
        &json!({ "questions_total": 45, "timeouts_total": 1 }),
    )?;
    for (direction, field) in [
        ("ingress", "forgotten_total"),
        ("ingress", "unwatched_total"),
    ] {
        ensure!(
            sum(&document, direction, "dns", field)? == 0,
            "{field}: {document}"
        );
    }
    ensure!(
        sum(&document, "egress", "dns", "unexpected_total")? == 0,
        "{document}"
    );
    Ok(())
}

#[test]
fn questions_without_an_answer_in_time_are_counted_at_xdp() -> Result<()> {
    questions_without_an_answer_in_time_are_counted("xdp")
}

#[test]
fn questions_without_an_answer_in_time_are_counted_at_tc() -> Result<()> {
    questions_without_an_answer_in_time_are_counted("tc")
}

/// More questions than places: each question times out, or is forgotten, or counts as a question
/// without a watched timeout.
#[test]
fn questions_that_find_no_place_are_counted() -> Result<()> {
    const QUESTIONS: u64 = 200;
    const PLACES: u64 = 8;
    let scene = Scene::new(
        "xdp",
        &json!({ "TIMEOUT": "1000", "PENDING": PLACES.to_string() }),
    )?;
    for id in 0..QUESTIONS as u16 {
        scene.ask(Question(CLIENT, 4000, id))?;
    }
    let counted = |document: &Value| -> Result<[u64; 3]> {
        Ok([
            sum(document, "ingress", "dns_client", "timeouts_total")?,
            sum(document, "ingress", "dns", "forgotten_total")?,
            sum(document, "ingress", "dns", "unwatched_total")?,
        ])
    };
    wait_for("each question is settled", PATIENCE, || {
        scene.pass_something()?;
        let document = scene.read();
        let [timeouts, forgotten, unwatched] = counted(&document)?;
        ensure!(
            sum(&document, "ingress", "dns_client", "questions_total")? == QUESTIONS,
            "{document}"
        );
        ensure!(
            timeouts + forgotten <= QUESTIONS,
            "more than were asked: {document}"
        );
        ensure!(
            timeouts + forgotten + unwatched >= QUESTIONS,
            "{timeouts}, {forgotten}, {unwatched}"
        );
        ensure!(forgotten > 0, "{document}");
        Ok(())
    })
}
