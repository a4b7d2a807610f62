//! PostgreSQL: the real server, read by psql.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::certificates::Certificates;
use twinprobe_tests::scaled;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::layouts::{MEMBERS, close, counting};
use crate::push::server;
use crate::scene::{COLLECTOR, Node, Stream, configuration, free_port, kill_in_turn};

/// The server refuses to run as root, so the test runs it as the user `nobody`.
const SERVER_USER: u32 = 65_534;
const PASSWORD: &str = "hunter2";

/// A PostgreSQL server with the database `windows`, which belongs to the user `archive`. Dropping
/// this value kills the process.
pub struct Server {
    child: Option<Child>,
    directory: TempDir,
    programs: PathBuf,
    port: u16,
}

impl Server {
    pub fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        chown(directory.path(), Some(SERVER_USER), Some(SERVER_USER))?;
        // The path of the file from which the stream reads the certificate authority.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        let mut server = Self {
            child: None,
            directory,
            programs: programs()?,
            port: free_port()?,
        };
        fs::write(server.path("password"), PASSWORD)?;
        server.certificates()?;
        let mut command = server.command("initdb");
        command.args([
            "-U",
            "owner",
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
        ]);
        let output = command
            .arg(server.path("data"))
            .arg("--pwfile")
            .arg(server.path("password"))
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        server.start()?;
        server.ask(
            "owner",
            "postgres",
            &format!("CREATE ROLE archive LOGIN PASSWORD '{PASSWORD}'"),
        )?;
        server.ask("owner", "postgres", "CREATE DATABASE windows OWNER archive")?;
        Ok(server)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a command that runs a program of PostgreSQL as the user of the server.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .uid(SERVER_USER)
            .gid(SERVER_USER)
            .current_dir(self.directory.path());
        command
    }

    /// Writes certificates for the server at 127.0.0.1 and for a client, and the authority that has
    /// signed them.
    fn certificates(&self) -> Result<()> {
        let files = Certificates::new(self.directory.path())?;
        chown(
            self.path("certificates"),
            Some(SERVER_USER),
            Some(SERVER_USER),
        )?;
        for name in ["authority", "server", "server-key"] {
            chown(files.path(name), Some(SERVER_USER), Some(SERVER_USER))?;
            fs::set_permissions(files.path(name), Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.path("certificates").join(name)
    }

    /// From now on only clients with a certificate that the authority has signed may connect over
    /// TCP.
    fn ask_for_certificates(&self) -> Result<()> {
        let rules = "local all all scram-sha-256\nhostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n";
        fs::write(self.path("data/pg_hba.conf"), rules)?;
        let mut command = Command::new("psql");
        command
            .args(["-AtX", "-h"])
            .arg(self.directory.path())
            .args(["-p", &self.port.to_string()]);
        command.args([
            "-U",
            "owner",
            "-d",
            "postgres",
            "-c",
            "SELECT pg_reload_conf()",
        ]);
        let output = command
            .env("PGPASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let log = fs::File::create(self.path("log"))?;
        wait_for("PostgreSQL", PATIENCE, || {
            // If processes of an earlier server have not ended yet, a new one does not start.
            if !self
                .child
                .as_mut()
                .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
            {
                let mut command = self.command("postgres");
                command
                    .arg("-D")
                    .arg(self.path("data"))
                    .arg("-k")
                    .arg(self.directory.path());
                command.args([
                    "-p",
                    &self.port.to_string(),
                    "-c",
                    "listen_addresses=127.0.0.1",
                    "-c",
                    "ssl=on",
                ]);
                let files = [
                    ("ssl_cert_file", "server"),
                    ("ssl_key_file", "server-key"),
                    ("ssl_ca_file", "authority"),
                ];
                for (setting, name) in files {
                    command
                        .arg("-c")
                        .arg(format!("{setting}={}", self.certificate(name).display()));
                }
                self.child = Some(
                    command
                        .stdout(Stdio::null())
                        .stderr(log.try_clone()?)
                        .spawn()?,
                );
            }
            let answer = self.ask("owner", "postgres", "SELECT 1");
            answer
                .with_context(|| fs::read_to_string(self.path("log")).unwrap_or_default())
                .map(drop)
        })
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Returns what psql prints for a statement: a line for each row, with `|` between cells.
    fn ask(&self, user: &str, database: &str, sql: &str) -> Result<String> {
        let mut command = Command::new("psql");
        command.args(["-AtX", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        command.args(["-U", user, "-d", database, "-c", sql]);
        let output = command
            .env("PGPASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .output()?;
        ensure!(
            output.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    pub fn rows(&self, sql: &str) -> Result<String> {
        self.ask("archive", "windows", sql)
    }

    /// A receiver that connects over TLS, with these fields besides.
    pub fn receiver(&self, more: &Value) -> Value {
        let mut options = json!({
            "hosts": [format!("127.0.0.1:{}", self.port)], "database": "windows", "user": "archive",
            "passwordFile": self.path("password"), "tls": "require", "ca": self.certificate("authority"),
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            options[name] = value.clone();
        }
        json!([{ "postgres": options }])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Returns where Debian has the programs of the newest server.
fn programs() -> Result<PathBuf> {
    let found = fs::read_dir("/usr/lib/postgresql").context("run setup/install.sh")?;
    let versions = found
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .into_iter()
        .max_by_key(|path| version(path))
        .context("a version of PostgreSQL")?;
    Ok(newest.join("bin"))
}

fn send_all(config: &Path) -> Result<()> {
    let told = server::send_all(config)?;
    ensure!(!told.contains(PASSWORD), "{told}");
    Ok(())
}

/// Streams, the daemon and the server are killed at any moment. The tables have each window and
/// each packet once.
#[test]
fn tables_have_each_packet_once_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut server = Server::new()?;
    let mut node = Node::new("gw/1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let config = configuration(
        directory.path(),
        &[&node],
        &server.receiver(&json!({})),
        &json!({}),
    )?;
    let mut restart = || {
        server.kill()?;
        server.start()
    };
    kill_in_turn(&mut node, &config, scaled(6, 300), Some(&mut restart))?;
    let sent = traffic.stop()?;
    let closed = close(&node, "p")["window"]["seq"].as_u64();
    send_all(&config)?;
    let counted = server
        .rows("SELECT sum(value), count(DISTINCT seq) FROM twinprobe.\"p.ingress.packets\"")?;
    let windows = server.rows(
        "SELECT node, count(*), count(DISTINCT seq), min(seq), max(seq), sum(lost_windows) FROM twinprobe.windows GROUP BY 1",
    )?;
    let last = server.rows("SELECT max(seq) FROM twinprobe.windows")?;
    ensure!(
        counted == format!("{sent}|{last}"),
        "{sent} were sent: {counted}, {windows}"
    );
    ensure!(
        windows == format!("gw/1.example|{last}|{last}|1|{last}|0"),
        "{last}: {windows}"
    );
    ensure!(last.parse().ok() >= closed, "{last} of {closed:?}");
    let exact = server.rows(
        "SELECT count(*) FROM twinprobe.windows WHERE extract(epoch FROM window_start) * 1000000 = window_start_ns / 1000 \
         AND extract(epoch FROM window_end) * 1000000 = window_end_ns / 1000",
    )?;
    ensure!(exact == last, "{exact} of {last}");
    Ok(())
}

/// New members become columns; a member of another type begins another table. Keys are those of the
/// document; gaps are rows.
#[test]
fn tables_follow_the_layout_and_gaps_are_rows() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (server, node) = (Server::new()?, Node::new("node-0")?);
    let socket = json!({ "hosts": [server.directory.path()], "port": server.port, "database": "windows", "user": "archive",
                         "passwordFile": server.path("password"), "schema": "Fenster \"1\"" });
    let config = configuration(
        directory.path(),
        &[&node],
        &json!([{ "postgres": &socket }]),
        &json!({}),
    )?;
    let mut generator = Generator::new(
        node.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )?;
    let mut names = Vec::new();
    for (index, member) in MEMBERS.into_iter().enumerate() {
        let status = if index == 0 { 201 } else { 200 };
        node.daemon()
            .put("/v1/probes/p", &counting(member))
            .expect(status);
        generator.send(10 + index as u64)?;
        names.push(close(&node, "p")["ingress"]["counts"]["entries"][0]["key"]["name"].clone());
        send_all(&config)?;
    }
    node.daemon()
        .put("/v1/probes/q", &{
            let mut config = counting("__u64 packets;");
            config["window"] = json!({ "retain": 2, "collectors": [COLLECTOR, "second"] });
            config
        })
        .expect(201);
    (0..5).for_each(|_| drop(close(&node, "q")));
    send_all(&config)?;
    let schema = "\"Fenster \"\"1\"\"\"";
    let table = |name: &str| format!("{schema}.\"{name}\"");
    let first = server.rows(&format!(
        "SELECT name, sum(packets), count(*), count(flags) FROM {} GROUP BY 1",
        table("p.ingress.counts")
    ))?;
    let name = names[0].as_str().context("a name")?;
    ensure!(
        name.contains("\\x00b") && names.iter().all(|other| other == name),
        "{names:?}"
    );
    ensure!(first == format!("{name}|21|2|1"), "{first}");
    let variants = server.rows(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'Fenster \"1\"' AND tablename LIKE 'p.%~%'",
    )?;
    let second = server.rows(&format!("SELECT sum(packets) FROM {}", table(&variants)))?;
    ensure!(second == "12", "{variants}: {second}");
    let gaps = || {
        server.rows(&format!(
            "SELECT node, probe, first_seq, last_seq, windows FROM {schema}.gaps ORDER BY 3"
        ))
    };
    ensure!(gaps()? == "node-0|q|1|3|3", "{}", gaps()?);
    // Windows 4 to 7 are lost to a stream that has acknowledged none. The tables have 4 and 5.
    (0..4).for_each(|_| drop(close(&node, "q")));
    for name in ["second", COLLECTOR] {
        let to = json!([{ "postgres": socket }]);
        send_all(&configuration(
            directory.path(),
            &[&node],
            &to,
            &json!({ "name": name }),
        )?)?;
        ensure!(
            gaps()? == "node-0|q|1|3|3\nnode-0|q|6|7|2",
            "{name}: {}",
            gaps()?
        );
    }
    Ok(())
}

/// The log names the setting that an operator must change, without the password; nothing is
/// acknowledged.
#[test]
fn refusals_of_the_server_say_what_to_change() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (server, node) = (Server::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    close(&node, "p");
    let wrong = server.path("wrong");
    fs::write(&wrong, "*******\n")?;
    server.ask(
        "owner",
        "postgres",
        &format!("CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'"),
    )?;
    for (more, expected) in [
        (
            json!({ "passwordFile": wrong }),
            "see `user` and `passwordFile`",
        ),
        (json!({ "database": "none" }), "see `database`"),
        (json!({ "user": "guest" }), "needs CREATE on the database"),
        (json!({ "ca": server.path("none") }), "none"),
        (json!({ "ca": null }), "`ca` names the authorities"),
    ] {
        let config = configuration(
            directory.path(),
            &[&node],
            &server.receiver(&more),
            &json!({}),
        )?;
        let running = Stream::start(&config)?;
        wait_for("the reason", PATIENCE, || {
            let log = running.log();
            ensure!(log.contains(expected), "{more}: {log}");
            Ok(())
        })?;
        ensure!(!running.log().contains(PASSWORD) && node.unacknowledged() == 1);
    }
    // A server that asks for certificates takes the windows of a client that shows one.
    server.ask_for_certificates()?;
    let shown =
        json!({ "cert": server.certificate("client"), "key": server.certificate("client-key") });
    let config = |more: &Value| {
        configuration(
            directory.path(),
            &[&node],
            &server.receiver(more),
            &json!({}),
        )
    };
    let running = Stream::start(&config(&json!({}))?)?;
    wait_for("the refusal", PATIENCE, || {
        let log = running.log();
        ensure!(log.contains("client certificate"), "{log}");
        Ok(())
    })?;
    drop(running);
    send_all(&config(&shown)?)?;
    ensure!(node.unacknowledged() == 0);
    Ok(())
}
