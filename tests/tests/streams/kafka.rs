//! Kafka: the real broker, read by kcat.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{COLLECTOR, Node, Stream, configuration, free_port, kill_in_turn, stream, tool};

/// A broker that is its own controller. It is killed on drop.
struct Broker {
    child: Option<Child>,
    directory: TempDir,
    /// The ports without TLS and with it.
    ports: [u16; 2],
}

impl Broker {
    fn new() -> Result<Self> {
        let mut broker =
            Self { child: None, directory: tempfile::tempdir()?, ports: [free_port()?, free_port()?] };
        broker.certificates()?;
        let ([plain, encrypted], controller) = (broker.ports, free_port()?);
        let settings = [
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER".to_owned(),
            format!("controller.quorum.voters=1@127.0.0.1:{controller}"),
            format!(
                "listeners=PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted},CONTROLLER://127.0.0.1:{controller}"
            ),
            format!("advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted}"),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT".to_owned(),
            format!("log.dirs={}", broker.path("data").display()),
            // One broker, which is ready soon.
            "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1".to_owned(),
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1".to_owned(),
            "transaction.state.log.num.partitions=1\nnum.partitions=3\nauto.create.topics.enable=false"
                .to_owned(),
            "ssl.client.auth=required\nssl.keystore.type=PEM\nssl.truststore.type=PEM".to_owned(),
            format!("ssl.keystore.location={}", broker.path("server").display()),
            format!("ssl.truststore.location={}", broker.path("authority").display()),
        ];
        fs::write(broker.path("settings"), settings.join("\n"))?;
        let mut format = broker.java("kafka.tools.StorageTool")?;
        let output = format
            .args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c"])
            .arg(broker.path("settings"))
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        broker.start()?;
        Ok(broker)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn java(&self, class: &str) -> Result<Command> {
        let mut command = Command::new("java");
        command.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"]).arg(tool("kafka")?.join("*")).arg(class);
        Ok(command)
    }

    /// Writes certificates for the broker and its clients, the authority that has signed them, and another authority.
    fn certificates(&self) -> Result<()> {
        let authority = authority("an authority")?;
        for (name, usage) in
            [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
            // OpenSSL takes a certificate whose name is that of its authority for the authority.
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate()?;
            let cert = params.signed_by(&key, &authority)?.pem();
            fs::write(self.path(name), format!("{}{cert}", key.serialize_pem()))?;
        }
        fs::write(self.path("authority"), authority.pem())?;
        Ok(fs::write(self.path("other"), self::authority("another")?.pem())?)
    }

    fn start(&mut self) -> Result<()> {
        let log = fs::File::create(self.path("log"))?;
        let mut command = self.java("kafka.Kafka")?;
        command.arg(self.path("settings")).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        wait_for("Kafka", PATIENCE, || {
            let log = fs::read_to_string(self.path("log"))?;
            let tail = log.get(log.len().saturating_sub(2_000)..).unwrap_or_default().to_owned();
            let metadata = self.kcat(&["-L", "-m", "1"]);
            metadata.map(drop).context(tail)
        })
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    fn kcat(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("kcat");
        command.args(["-b", &format!("127.0.0.1:{}", self.ports[0])]).args(arguments);
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The messages that a consumer sees for good: partition, offset, headers, key, and the document as text.
    fn messages(&self, topic: &str) -> Result<Vec<Value>> {
        let text =
            self.kcat(&["-C", "-t", topic, "-e", "-q", "-J", "-X", "isolation.level=read_committed"])?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// A receiver that connects over TLS, with these fields besides.
    fn receiver(&self, more: &Value) -> Value {
        let mut options = json!({
            "brokers": [format!("127.0.0.1:{}", self.ports[1])], "topic": "windows", "tls": "require", "ca": self.path("authority"),
            "cert": self.path("client"), "key": self.path("client"),
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            options[name] = value.clone();
        }
        json!([{ "kafka": options }])
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn packets(message: &Value) -> Result<u64> {
    let document: Value = serde_json::from_str(message["payload"].as_str().context("a document")?)?;
    let entries = document["ingress"]["packets"]["entries"].as_array().context("entries")?.clone();
    let value = |value: &Value| match value {
        Value::Array(cpus) => cpus.iter().filter_map(Value::as_u64).sum(),
        value => value.as_u64().unwrap_or_default(),
    };
    Ok(entries.iter().map(|entry| value(&entry["value"])).sum())
}

/// The header of a message: kcat lists names and values in turn.
fn header<'a>(message: &'a Value, name: &str) -> Option<&'a str> {
    let headers = message["headers"].as_array()?;
    headers.chunks(2).find(|pair| pair[0] == name)?.get(1)?.as_str()
}

fn send_all(config: &Path) -> Result<()> {
    let output = stream(&["-f", &config.display().to_string(), "--once"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Stream, broker and daemon are killed at any moment. A reader of committed records sees each window and each packet
/// once, in order.
#[test]
fn a_topic_has_each_packet_once_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut broker = Broker::new()?;
    let mut node = Node::new("gw/1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let config = configuration(directory.path(), &[&node], &broker.receiver(&json!({})), &json!({}))?;
    let mut restart = || {
        broker.kill()?;
        broker.start()
    };
    kill_in_turn(&mut node, &config, scaled(6, 300), Some(&mut restart))?;
    let sent = traffic.stop()?;
    node.daemon().request("POST", "/v1/probes/p/windows", &[], b"").expect(201);
    send_all(&config)?;
    let messages = broker.messages("windows")?;
    for (index, message) in messages.iter().enumerate() {
        let seq = (index + 1).to_string();
        let is_next = header(message, "Twinprobe-Seq") == Some(&seq) && message["key"] == "gw%2F1.example/p";
        let is_named = header(message, "Twinprobe-Node") == Some("gw/1.example")
            && header(message, "Twinprobe-Probe") == Some("p");
        ensure!(is_next && is_named, "{message} is message {seq}");
    }
    let counted: u64 = messages.iter().map(packets).sum::<Result<u64>>()?;
    ensure!(counted == sent, "{sent} were sent, {counted} are in {} messages", messages.len());
    Ok(())
}

/// A message tells what retention removed. Without transactions windows arrive, too. A window too large for a message holds up its probe.
#[test]
fn gaps_are_messages_and_large_windows_wait() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (broker, node) = (Broker::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "retain": 2, "collectors": [COLLECTOR] }));
    for _ in 0..5 {
        node.daemon().request("POST", "/v1/probes/p/windows", &[], b"").expect(201);
    }
    let small = broker.receiver(&json!({ "maxMessageBytes": 1_100 }));
    let held = Stream::start(&configuration(directory.path(), &[&node], &small, &json!({}))?)?;
    wait_for("the reason", PATIENCE, || {
        ensure!(held.log().contains("more than maxMessageBytes"), "{}", held.log());
        Ok(())
    })?;
    held.terminate()?;
    ensure!(node.unacknowledged() == 2);
    for more in [json!({}), json!({ "exactlyOnce": false, "topic": "plain", "compression": "lz4" })] {
        let topic = more["topic"].as_str().unwrap_or("windows").to_owned();
        send_all(&configuration(directory.path(), &[&node], &broker.receiver(&more), &json!({}))?)?;
        let messages = broker.messages(&topic)?;
        let seqs: Vec<_> = messages.iter().filter_map(|message| header(message, "Twinprobe-Seq")).collect();
        if topic == "windows" {
            ensure!(
                seqs == ["3", "4", "5"]
                    && messages[0]["payload"].as_str().is_some_and(|text| text.contains("\"gap\"")),
                "{messages:?}"
            );
            node.daemon().request("POST", "/v1/probes/p/windows", &[], b"").expect(201);
        } else {
            ensure!(seqs == ["6"], "{messages:?}");
        }
    }
    Ok(())
}

/// The log names the setting that an operator must change; nothing is acknowledged. A dry run contacts
/// nothing.
#[test]
fn refusals_of_the_broker_say_what_to_change() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (broker, node) = (Broker::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    node.daemon().request("POST", "/v1/probes/p/windows", &[], b"").expect(201);
    let config = configuration(directory.path(), &[&node], &broker.receiver(&json!({})), &json!({}))?;
    let output = stream(&["-f", &config.display().to_string(), "--dry-run"])?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success() && told.contains("/windows key node-0/p"), "{told}");
    for (more, expected) in [
        (json!({ "create": false }), "there is no topic windows"),
        (json!({ "ca": broker.path("other") }), "certificate verify failed"),
        (json!({ "cert": null, "key": null }), "no answer of Kafka"),
        (json!({ "key": broker.path("none") }), "none: No such file"),
        // The topic of windows deletes old messages.
        (json!({ "exactlyOnce": false, "topic": "old" }), ""),
        (json!({ "cursorTopic": "old" }), "set it to compact"),
    ] {
        let before = node.unacknowledged();
        let config = configuration(directory.path(), &[&node], &broker.receiver(&more), &json!({}))?;
        if expected.is_empty() {
            send_all(&config)?;
            node.daemon().request("POST", "/v1/probes/p/windows", &[], b"").expect(201);
            continue;
        }
        let running = Stream::start(&config)?;
        wait_for("the reason", PATIENCE, || {
            let log = running.log();
            ensure!(log.contains(expected), "{more}: {log}");
            Ok(())
        })?;
        ensure!(node.unacknowledged() == before);
    }
    Ok(())
}
