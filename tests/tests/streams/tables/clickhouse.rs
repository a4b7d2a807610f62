//! ClickHouse: the real engine behind an HTTP interface of the tests, read over the same interface.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::scaled;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::layouts::{MEMBERS, close, counting};
use crate::flows::{self, FlowNode};
use crate::push::server::{self, Server};
use crate::scene::{COLLECTOR, Node, Stream, configuration, free_port, kill_in_turn, stream, tool};
use twinprobe_tests::certificates::Certificates;

const PASSWORD: &str = "hunter2";

/// A server that asks for a certificate and a password.
pub struct Clickhouse {
    server: Server,
    directory: TempDir,
    certificates: Certificates,
    port: u16,
}

impl Clickhouse {
    pub fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let (certificates, port) = (Certificates::new(directory.path())?, free_port()?);
        fs::write(directory.path().join("password"), PASSWORD)?;
        fs::write(
            directory.path().join("access"),
            format!("archive:{PASSWORD}"),
        )?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/clickhouse/server.py");
        let [authority, cert, cert_key] =
            ["authority", "server", "server-key"].map(|name| certificates.path(name));
        let access = directory.path().join("access");
        let arguments = [
            &*script,
            Path::new(&port.to_string()),
            directory.path(),
            Path::new("--access"),
            &access,
        ]
        .into_iter()
        .chain([Path::new("--tls"), &authority, &cert, &cert_key])
        .map(|argument| argument.display().to_string())
        .collect();
        let server = Server::start(&tool("chdb/bin/python")?, arguments, port, directory.path())?;
        Ok(Self {
            server,
            directory,
            certificates,
            port,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns the rows that a statement finds: cells with tabulators between them.
    pub fn rows(&self, sql: &str) -> Result<String> {
        let mut command = Command::new("curl");
        command.args([
            "-sS",
            "--fail-with-body",
            "--user",
            &format!("archive:{PASSWORD}"),
            "--data-binary",
            sql,
        ]);
        for (option, name) in [
            ("--cacert", "authority"),
            ("--cert", "client"),
            ("--key", "client-key"),
        ] {
            command.arg(option).arg(self.certificates.path(name));
        }
        let output = command.arg(self.url()).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(
            output.status.success(),
            "{sql}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text)
    }

    /// A receiver with these fields besides.
    pub fn receiver(&self, more: &Value) -> Value {
        let mut options = json!({
            "url": self.url(), "database": "windows", "user": "archive", "passwordFile": self.path("password"),
            "ca": self.certificates.path("authority"), "cert": self.certificates.path("client"),
            "key": self.certificates.path("client-key"), "every": "100ms",
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            options[name] = value.clone();
        }
        json!([{ "clickhouse": options }])
    }

    /// The figures in the tables: packets, windows and rows of the metric; then the windows, the
    /// distinct ones, the first, the last, and the lost ones.
    fn counts(&self, modifier: &str) -> Result<[String; 2]> {
        Ok([
            self.rows(&format!("SELECT sum(value), uniqExact(seq), count() FROM windows.`p.ingress.packets` {modifier}"))?,
            self.rows(&format!(
                "SELECT count(), uniqExact(seq), min(seq), max(seq), sum(lost_windows) FROM windows.windows {modifier}"
            ))?,
        ])
    }
}

/// The figures in the tables if each window is there once. Each window has a row of its metric.
fn expected(sent: u64, last: u64) -> [String; 2] {
    [
        format!("{sent}\t{last}\t{last}"),
        format!("{last}\t{last}\t1\t{last}\t0"),
    ]
}

/// A text in SQL.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Streams, the daemon and the server are killed at any moment. The tables have each window and
/// each packet once, before any merge.
#[test]
fn tables_have_each_packet_once_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut clickhouse = Clickhouse::new()?;
    let mut node = Node::new("gw/1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let config = configuration(
        directory.path(),
        &[&node],
        &clickhouse.receiver(&json!({})),
        &json!({}),
    )?;
    let mut restart = || {
        clickhouse.server.kill()?;
        clickhouse.server.again()
    };
    kill_in_turn(&mut node, &config, scaled(9, 300), Some(&mut restart))?;
    let sent = traffic.stop()?;
    let closed = close(&node, "p")["window"]["seq"].as_u64();
    let told = server::send_all(&config)?;
    ensure!(!told.contains(PASSWORD), "{told}");
    // Without a modifier, the reading shows duplicates that the engine has not merged yet.
    let found = clickhouse.counts("")?;
    let last: u64 = clickhouse
        .rows("SELECT max(seq) FROM windows.windows")?
        .parse()?;
    ensure!(
        found == expected(sent, last) && Some(last) >= closed,
        "{sent} were sent, {last} of {closed:?}: {found:?}"
    );
    Ok(())
}

/// Two streams send the same windows at once. Readers with FINAL see each once.
#[test]
fn two_writers_are_one_to_readers() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (clickhouse, node) = (Clickhouse::new()?, Node::new("node-0")?);
    let names = [COLLECTOR, "second"];
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": names }));
    let traffic = node.traffic()?;
    let mut running = Vec::new();
    for name in names {
        let place = directory.path().join(name);
        fs::create_dir(&place)?;
        let to = clickhouse.receiver(&json!({}));
        let config = configuration(&place, &[&node], &to, &json!({ "name": name }))?;
        running.push((Stream::start(&config)?, config));
    }
    node.wait_for_window(scaled(30, 300))?;
    let sent = traffic.stop()?;
    close(&node, "p");
    for (stream, config) in running {
        stream.terminate()?;
        server::send_all(&config)?;
    }
    let last: u64 = clickhouse
        .rows("SELECT max(seq) FROM windows.windows")?
        .parse()?;
    let found = clickhouse.counts("FINAL")?;
    ensure!(
        found == expected(sent, last),
        "{sent} were sent, {last}: {found:?}"
    );
    Ok(())
}

/// New members become columns; a member of another type begins another table. Keys are those of the
/// document; gaps are rows.
#[test]
fn tables_follow_the_layout_and_gaps_are_rows() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (clickhouse, node) = (Clickhouse::new()?, Node::new("node-0")?);
    let to = clickhouse.receiver(&json!({ "database": "Fenster `1\\" }));
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?;
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
        server::send_all(&config)?;
    }
    let mut few = counting(MEMBERS[0]);
    few["window"] = json!({ "retain": 2, "collectors": [COLLECTOR, "second"] });
    node.daemon().put("/v1/probes/q", &few).expect(201);
    (0..5).for_each(|_| drop(close(&node, "q")));
    server::send_all(&config)?;
    let table = |name: &str| format!("`Fenster \\`1\\\\`.`{name}`");
    let name = text(names[0].as_str().unwrap_or_default());
    let counts = table("p.ingress.counts");
    let found = clickhouse.rows(&format!(
        "SELECT name = {name}, sum(packets), count(), count(flags) FROM {counts} GROUP BY name"
    ))?;
    ensure!(
        found == "1\t21\t2\t1" && names.iter().all(|name| *name == names[0]),
        "{names:?}: {found}"
    );
    let variant = clickhouse.rows(
        "SELECT name FROM system.tables WHERE database LIKE 'Fenster%' AND name LIKE 'p.%~%'",
    )?;
    let second = clickhouse.rows(&format!(
        "SELECT sum(packets), toTypeName(any(packets)) FROM {}",
        table(&variant)
    ))?;
    ensure!(second == "12\tNullable(Int64)", "{variant}: {second}");
    let gaps = || {
        let gaps = table("gaps");
        clickhouse.rows(&format!(
            "SELECT node, probe, first_seq, last_seq, windows FROM {gaps} ORDER BY first_seq"
        ))
    };
    ensure!(gaps()? == "node-0\tq\t1\t3\t3", "{}", gaps()?);
    // Windows 4 to 7 are lost to a stream that has acknowledged none. The tables have 4 and 5.
    (0..4).for_each(|_| drop(close(&node, "q")));
    for name in ["second", COLLECTOR] {
        server::send_all(&configuration(
            directory.path(),
            &[&node],
            &to,
            &json!({ "name": name }),
        )?)?;
        ensure!(
            gaps()? == "node-0\tq\t1\t3\t3\nnode-0\tq\t6\t7\t2",
            "{name}: {}",
            gaps()?
        );
    }
    let settings = clickhouse.rows("SELECT count() FROM system.tables WHERE database LIKE 'Fenster%' AND create_table_query LIKE '%fsync_after_insert = 1%'")?;
    let tables =
        clickhouse.rows("SELECT count() FROM system.tables WHERE database LIKE 'Fenster%'")?;
    ensure!(settings == tables, "{settings} of {tables}");
    Ok(())
}

/// A file of the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Returns the queries of the dashboard with the titles of their panels, and with values in place
/// of Grafana's variables.
fn queries() -> Result<Vec<(String, String)>> {
    let dashboard = fs::read_to_string(project("deploy/compose/grafana-clickhouse.json"))?;
    let dashboard: Value = serde_json::from_str(&dashboard)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let sql = text(&target["rawSql"])
                .replace(
                    "$__timeFilter(window_end)",
                    "window_end > now() - INTERVAL 1 HOUR",
                )
                .replace(
                    "$__timeInterval(window_end)",
                    "toStartOfInterval(toDateTime(window_end), INTERVAL 10 second)",
                )
                .replace("FROM ", "FROM windows.");
            queries.push((text(&panel["title"]), sql));
        }
    }
    ensure!(
        queries.len() == 10 && !queries.iter().any(|(_, sql)| sql.contains('$')),
        "{queries:?}"
    );
    Ok(queries)
}

/// The example of deploy/compose: its stream reads its configuration, and each query of its
/// dashboard has an answer.
#[test]
fn the_dashboard_of_the_example_shows_flows() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (clickhouse, node) = (Clickhouse::new()?, FlowNode::new()?);
    node.window()?;
    let document = node.window()?;
    let config = node.configuration(directory.path(), &clickhouse.receiver(&json!({}))[0])?;
    flows::send_all(&config)?;
    let entries = document["ingress"]["flows"]["entries"]
        .as_array()
        .map_or(0, Vec::len);
    let rows = clickhouse.rows(
        "SELECT count() FROM windows.`flow-features.ingress.flows` WHERE seq = 2 AND rest IS NULL",
    )?;
    ensure!(
        rows == entries.to_string() && entries > 3,
        "{rows} of {entries}"
    );
    clickhouse.rows("INSERT INTO windows.gaps VALUES ('node-0', 'q', 'i', 1, 3, 3)")?;
    for (title, sql) in queries()? {
        let found = clickhouse.rows(&sql)?;
        ensure!(!found.is_empty() && found != "0", "{title}: {sql}: {found}");
    }
    let example = project("deploy/compose/stream.yaml");
    let output = stream(&["-f", &example.display().to_string(), "--dry-run"])?;
    // The configuration is correct, although the daemon of the example does not exist here.
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(1) && error.contains("/run/twinprobe/twinprobe.sock"),
        "{error}"
    );
    Ok(())
}

/// An error tells what to change, without the password, and nothing is acknowledged. A dry run
/// contacts nothing.
#[test]
fn refusals_of_the_server_say_what_to_change() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (mut clickhouse, node) = (Clickhouse::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    close(&node, "p");
    let wrong = clickhouse.path("wrong");
    fs::write(&wrong, "hunter3\n")?;
    for (more, expected) in [
        (
            json!({ "passwordFile": wrong }),
            "see `user`, `passwordFile` and `cert`",
        ),
        (
            json!({ "ca": clickhouse.certificates.path("other") }),
            "UnknownIssuer",
        ),
        (
            json!({ "key": clickhouse.path("none") }),
            "none: No such file",
        ),
    ] {
        let config = configuration(
            directory.path(),
            &[&node],
            &clickhouse.receiver(&more),
            &json!({}),
        )?;
        let running = Stream::start(&config)?;
        wait_for("the reason", PATIENCE, || {
            let log = running.log();
            ensure!(
                log.contains(expected) && !log.contains("hunter"),
                "{more}: {log}"
            );
            Ok(())
        })?;
        ensure!(node.unacknowledged() == 1);
    }
    // Another program made a table of that name.
    clickhouse.rows("CREATE DATABASE windows")?;
    clickhouse
        .rows("CREATE TABLE windows.windows (node String) ENGINE = MergeTree ORDER BY node")?;
    let config = configuration(
        directory.path(),
        &[&node],
        &clickhouse.receiver(&json!({})),
        &json!({}),
    )?;
    let running = Stream::start(&config)?;
    wait_for("the reason", PATIENCE, || {
        let log = running.log();
        ensure!(
            log.contains("the column node of `windows`.`windows` is String"),
            "{log}"
        );
        Ok(())
    })?;
    ensure!(node.unacknowledged() == 1);
    drop(running);
    clickhouse.server.kill()?;
    let output = stream(&["-f", &config.display().to_string(), "--dry-run"])?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && told.contains("/windows table `p.DIRECTION.METRIC`"),
        "{told}"
    );
    Ok(())
}
