//! Kafka: the real broker.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use serde_json::Value;
use tempfile::TempDir;

use super::{free_port, tool};
use crate::wait::{PATIENCE, wait_for};

/// A broker that is its own controller. A drop kills the process.
pub struct KafkaBroker {
    child: Option<Child>,
    directory: TempDir,
    pub address: String,
    /// The port without TLS, and the port with TLS.
    pub ports: [u16; 2],
}

impl KafkaBroker {
    pub fn new() -> Result<Self> {
        Self::at("127.0.0.1")
    }

    /// Starts one at this address of the thread's namespace. Its later starts belong into the same
    /// namespace.
    pub fn at(address: &str) -> Result<Self> {
        let (directory, address) = (tempfile::tempdir()?, address.to_owned());
        let mut broker = Self {
            child: None,
            directory,
            address,
            ports: [free_port()?, free_port()?],
        };
        broker.certificates()?;
        let ([plain, encrypted], controller, at) = (broker.ports, free_port()?, &broker.address);
        let settings = [
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER".to_owned(),
            format!("controller.quorum.voters=1@127.0.0.1:{controller}"),
            format!(
                "listeners=PLAINTEXT://{at}:{plain},SSL://{at}:{encrypted},CONTROLLER://127.0.0.1:{controller}"
            ),
            format!("advertised.listeners=PLAINTEXT://{at}:{plain},SSL://{at}:{encrypted}"),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT".to_owned(),
            format!("log.dirs={}", broker.path("data").display()),
            // The settings let a single broker be ready quickly.
            "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1".to_owned(),
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1".to_owned(),
            "transaction.state.log.num.partitions=1\nnum.partitions=3\nauto.create.topics.enable=false"
                .to_owned(),
            "ssl.client.auth=required\nssl.keystore.type=PEM\nssl.truststore.type=PEM".to_owned(),
            format!("ssl.keystore.location={}", broker.path("server").display()),
            format!("ssl.truststore.location={}", broker.path("authority").display()),
        ];
        fs::write(broker.path("settings"), settings.join("\n"))?;
        let output = Command::new(tool("bin/kafka-storage.sh")?)
            .args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c"])
            .arg(broker.path("settings"))
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        broker.start()?;
        Ok(broker)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes certificates for the broker and its clients, the authority that has signed them, and
    /// another authority.
    fn certificates(&self) -> Result<()> {
        let authority = authority("an authority")?;
        for (name, usage) in [
            ("server", ExtendedKeyUsagePurpose::ServerAuth),
            ("client", ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let mut params = CertificateParams::new(vec![self.address.clone()])?;
            // OpenSSL takes a certificate whose name is that of its authority for the authority.
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate()?;
            let cert = params.signed_by(&key, &authority)?.pem();
            fs::write(self.path(name), format!("{}{cert}", key.serialize_pem()))?;
        }
        fs::write(self.path("authority"), authority.pem())?;
        Ok(fs::write(
            self.path("other"),
            self::authority("another")?.pem(),
        )?)
    }

    pub fn start(&mut self) -> Result<()> {
        let log = fs::File::create(self.path("log"))?;
        let mut command = Command::new(tool("bin/kafka-server-start.sh")?);
        command
            .arg(self.path("settings"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(command.spawn()?);
        wait_for("Kafka", PATIENCE, || {
            let log = fs::read_to_string(self.path("log"))?;
            let errors: Vec<&str> = log
                .lines()
                .filter(|line| line.contains("ERROR"))
                .take(5)
                .collect();
            let tail = log
                .get(log.len().saturating_sub(2_000)..)
                .unwrap_or_default();
            let metadata = self.kcat(&["-L", "-m", "1"]);
            metadata
                .map(drop)
                .with_context(|| format!("{}\n{tail}", errors.join("\n")))
        })
    }

    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("it runs")?.id())
    }

    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    pub fn kcat(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("kcat");
        command
            .args(["-b", &format!("{}:{}", self.address, self.ports[0])])
            .args(arguments);
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The messages that a consumer sees for good: partition, offset, headers, key, and the
    /// document as text.
    pub fn messages(&self, topic: &str) -> Result<Vec<Value>> {
        let text = self.kcat(&[
            "-C",
            "-t",
            topic,
            "-e",
            "-q",
            "-J",
            "-X",
            "isolation.level=read_committed",
        ])?;
        text.lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect()
    }
}

impl Drop for KafkaBroker {
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
