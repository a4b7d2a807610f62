//! NATS JetStream: the real server, read by another client.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::certificates::Certificates;
use twinprobe_tests::scaled;
use twinprobe_tests::servers::nats::NatsServer;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{COLLECTOR, Node, Stream, configuration, kill_in_turn, python, stream};

/// Makes a stream that forgets ids soon, so that the expected last sequence must tell repeats.
pub const MAKE: &str = "import asyncio, json, sys, nats
async def main():
    nc = await nats.connect(sys.argv[1])
    await nc.jetstream().add_stream(name='WINDOWS', subjects=['twinprobe.>'], duplicate_window=0.2)
    await nc.close()
asyncio.run(main())
print('{}')";
/// Prints all messages of the stream: subject, id, number and packets of each.
const READ: &str = "import asyncio, json, sys, nats
def packets(document):
    entries = document.get('ingress', {}).get('packets', {}).get('entries', [])
    return sum(sum(e['value']) if isinstance(e['value'], list) else e['value'] for e in entries)
async def main():
    nc = await nats.connect(sys.argv[1])
    js = nc.jetstream()
    found = []
    sub = await js.subscribe('twinprobe.>', ordered_consumer=True)
    total = (await js.stream_info('WINDOWS')).state.messages
    while len(found) < total:
        message = await sub.next_msg(timeout=10)
        document = json.loads(message.data)
        seq = document['window']['seq'] if 'window' in document else document['gap']
        found.append([message.subject, message.headers['Nats-Msg-Id'], seq, packets(document)])
    await nc.close()
    print(json.dumps(found))
asyncio.run(main())";

/// All messages of the stream.
pub fn messages(server: &NatsServer) -> Result<Vec<Value>> {
    Ok(serde_json::from_value(python(READ, &[&server.url()])?)?)
}

/// Stream, daemon and server are killed at any moment. JetStream has each window once and in order,
/// even after its time for ids.
#[test]
fn jetstream_has_each_window_once_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut server = NatsServer::new(&directory.path().join("nats"))?;
    python(MAKE, &[&server.url()])?;
    let mut node = Node::new("gw-1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let to =
        json!([{ "nats": { "servers": [server.url()], "stream": "WINDOWS", "create": false } }]);
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?;
    let mut restart = || {
        server.kill()?;
        server.start()
    };
    kill_in_turn(&mut node, &config, scaled(9, 300), Some(&mut restart))?;
    let sent = traffic.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let output = stream(&["-f", &config.display().to_string(), "--once"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let messages = messages(&server)?;
    let packets: u64 = messages
        .iter()
        .filter_map(|message| message[3].as_u64())
        .sum();
    ensure!(
        packets == sent,
        "{sent} were sent, {packets} are in {} messages",
        messages.len()
    );
    for (index, message) in messages.iter().enumerate() {
        let is_next = message[2] == json!(index + 1);
        ensure!(
            is_next && message[0] == "twinprobe.gw-1%2Eexample.p",
            "{message} is message {}",
            index + 1
        );
    }
    Ok(())
}

/// A secret does not leave over a connection without TLS, if the configuration names authorities or
/// asks for TLS.
#[test]
fn a_secret_waits_for_tls() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = Certificates::new(directory.path())?;
    let server = NatsServer::new(&directory.path().join("nats"))?;
    let node = Node::new("node-0")?;
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let token = directory.path().join("token");
    std::fs::write(&token, "hunter2\n")?;
    let send = |more: &[(&str, Value)]| -> Result<_> {
        let mut options =
            json!({ "servers": [server.url()], "stream": "WINDOWS", "tokenFile": token });
        more.iter()
            .for_each(|(name, value)| options[*name] = value.clone());
        let config = configuration(
            directory.path(),
            &[&node],
            &json!([{ "nats": options }]),
            &json!({}),
        )?;
        let output = stream(&["-f", &config.display().to_string(), "--once"])?;
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    };
    for more in [
        ("ca", json!(files.path("authority"))),
        ("tls", json!("require")),
    ] {
        let (is_sent, error) = send(&[more])?;
        ensure!(
            !is_sent && error.contains("no connection with TLS") && !error.contains("hunter2"),
            "{error}"
        );
        ensure!(node.unacknowledged() == 1, "nothing is acknowledged");
    }
    // On this machine a secret needs no TLS.
    let (is_sent, error) = send(&[])?;
    ensure!(is_sent && node.unacknowledged() == 0, "{error}");
    Ok(())
}

/// While the server is down, the stream stays within its memory. After the server's return, all
/// windows arrive; a message reports the gap.
#[test]
fn a_server_that_is_away_costs_no_more_than_the_memory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut server = NatsServer::new(&directory.path().join("nats"))?;
    server.kill()?;
    let node = Node::new("node-0")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 60, "collectors": [COLLECTOR] }));
    let to = json!([{ "nats": { "servers": [server.url()], "stream": "WINDOWS" } }]);
    let more = json!({ "memory": "1MiB", "listen": "127.0.0.1:0" });
    let config = configuration(directory.path(), &[&node], &to, &more)?;
    let running = Stream::start(&config)?;
    wait_for("failures", PATIENCE, || {
        let failures = running.sample("twinprobe_stream_failures_total{receiver=\"nats\"}")?;
        ensure!(failures >= 2.0, "{failures}");
        Ok(())
    })?;
    node.wait_for_window(450)?;
    ensure!(running.sample("twinprobe_stream_memory_bytes{receiver=\"nats\"}")? <= 1_048_576.0);
    ensure!(running.sample("twinprobe_stream_receiver_up{receiver=\"nats\"}")? < 0.5);
    ensure!(running.sample("twinprobe_stream_lag_seconds{receiver=\"nats\"}")? > 0.5);
    server.start()?;
    wait_for("the receiver", PATIENCE, || {
        let up = running.sample("twinprobe_stream_receiver_up{receiver=\"nats\"}")?;
        ensure!(up > 0.5 && node.unacknowledged() < 40, "{up}");
        Ok(())
    })?;
    running.terminate()?;
    let messages = messages(&server)?;
    // A separate message names the missing numbers between two messages.
    let (mut next, mut gaps) = (1, 0);
    for message in &messages {
        let (first, last) = match &message[2] {
            Value::Object(gap) => {
                gaps += 1;
                (gap["first"].as_u64(), gap["last"].as_u64())
            }
            seq => (seq.as_u64(), seq.as_u64()),
        };
        ensure!(first == Some(next), "{message} after {}", next - 1);
        next = last.unwrap_or_default() + 1;
    }
    ensure!(next > 450 && gaps > 0, "{next}, {gaps} gaps");
    Ok(())
}
