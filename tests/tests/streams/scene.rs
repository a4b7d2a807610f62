//! A node with traffic, a stream that can be killed, and readers of its messages.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::measure::Resident;
use twinprobe_tests::sample::counter_config;
pub use twinprobe_tests::servers::{free_port, python, tool};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load, Running};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Topology, helper};

/// The name of the streams, as the probes know it.
pub const COLLECTOR: &str = "archive";

/// Returns the rows that DuckDB finds for a query.
pub fn duckdb(query: &str) -> Result<Value> {
    const SCRIPT: &str = "import duckdb, json, sys
rows = duckdb.sql(sys.argv[1]).fetchall()
print(json.dumps([[int(cell) if hasattr(cell, 'as_tuple') else cell for cell in row] for row in rows], default=str))";
    python(SCRIPT, &[query])
}

/// A node whose probe `p` counts packets, with windows of 50 ms for [`COLLECTOR`].
pub struct Node {
    pub topology: Topology,
    daemon: Option<Daemon>,
    options: DaemonOptions,
}

impl Node {
    pub fn new(name: &str) -> Result<Self> {
        Self::with(name, &[])
    }

    /// Makes a node whose daemon has further arguments.
    pub fn with(name: &str, more: &[&str]) -> Result<Self> {
        Self::in_place(Topology::new()?, Directories::new()?, name, more)
    }

    /// Makes a node in this topology, whose daemon has these directories.
    pub fn in_place(
        topology: Topology,
        directories: Directories,
        name: &str,
        more: &[&str],
    ) -> Result<Self> {
        let options = DaemonOptions::default()
            .argument("--node-name")
            .argument(name);
        let options = more
            .iter()
            .fold(options, |options, argument| options.argument(argument));
        let daemon = Some(Daemon::start_in(
            topology.monitor(),
            &options,
            directories.into(),
        )?);
        Ok(Self {
            topology,
            daemon,
            options,
        })
    }

    /// Deploys the probe with this `window` of its configuration.
    pub fn deploy(&self, window: &Value) {
        self.put(window, 201);
    }

    /// Replaces the probe by the probe of [`Self::deploy`].
    pub fn deploy_again(&self, window: &Value) {
        self.put(window, 200);
    }

    fn put(&self, window: &Value, status: u16) {
        let mut config = counter_config("mon0", "XDP_PASS");
        let metric = json!({ "name": "packets", "map": "packets", "snapshot": true, "init": true });
        config["ingress"]["metrics"] = json!([metric]);
        config["window"] = window.clone();
        self.daemon().put("/v1/probes/p", &config).expect(status);
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("the daemon runs")
    }

    pub fn url(&self) -> String {
        format!("unix:{}", self.daemon().directories().socket().display())
    }

    /// Kills the daemon and starts the next one.
    pub fn kill_daemon(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("the daemon runs")?;
        self.daemon = Some(daemon.restart(libc::SIGKILL, &self.options)?);
        Ok(())
    }

    /// Sends packets until [`Running::stop`].
    pub fn traffic(&self) -> Result<Running> {
        self.traffic_of(2_000)
    }

    /// Sends so many packets per second until [`Running::stop`].
    pub fn traffic_of(&self, rate: u64) -> Result<Running> {
        let generator = Generator::new(
            self.topology.generator(),
            "gen0",
            GeneratorOptions::default(),
        )?;
        Ok(generator.spawn(Load {
            rate: Some(rate),
            ..Load::default()
        }))
    }

    /// The windows that the stream has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        let list = self
            .daemon()
            .json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
        list["windows"].as_array().map_or(0, Vec::len)
    }

    /// Waits until the daemon has closed windows up to `seq`.
    pub fn wait_for_window(&self, seq: u64) -> Result<()> {
        wait_for("windows", PATIENCE, || {
            let newest = self.daemon().json("/v1/probes/p")["windows"]["newest"].as_u64();
            ensure!(newest >= Some(seq), "{newest:?}");
            Ok(())
        })
    }
}

/// Runs a stream and kills it, its server and the daemon in turn, each a while after the stream has
/// acknowledged more. Kills the stream in the end, and leaves the rest of the windows to the next
/// stream. `server` kills the server and starts it again; without `server` the stream is killed
/// instead.
pub fn kill_in_turn(
    node: &mut Node,
    config: &Path,
    kills: u64,
    mut server: Option<&mut dyn FnMut() -> Result<()>>,
) -> Result<()> {
    let (mut acknowledged, mut running) = (0, Stream::start(config)?);
    for kill in 0..kills {
        wait_for("an acknowledgement", PATIENCE, || {
            let list = node
                .daemon()
                .json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
            let after = list["after"].as_u64().unwrap_or_default();
            ensure!(after > acknowledged, "{list}");
            acknowledged = after;
            Ok(())
        })?;
        // Each kill comes at another moment: with a half-written file, or between a batch and its
        // acknowledgement.
        thread::sleep(Duration::from_millis(41 * kill % 230));
        match (kill % 3, &mut server) {
            (1, Some(server)) => server()?,
            (2, _) => node.kill_daemon()?,
            _ => {
                running.kill()?;
                running = Stream::start(config)?;
            }
        }
    }
    running.kill()
}

/// A stream that runs. A drop kills the process.
pub struct Stream {
    child: Child,
    directory: TempDir,
}

/// Returns `twinprobe-stream` with these arguments.
pub fn stream_command(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(helper("twinprobe-stream")?);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

/// Runs a stream to its end.
pub fn stream(arguments: &[&str]) -> Result<Output> {
    Ok(stream_command(arguments)?.output()?)
}

/// Writes a configuration for a stream from `nodes`, with these receivers and further fields.
pub fn configuration(
    directory: &Path,
    nodes: &[&Node],
    to: &Value,
    more: &Value,
) -> Result<PathBuf> {
    let servers: Vec<String> = nodes.iter().map(|node| node.url()).collect();
    let mut config = json!({ "name": COLLECTOR, "from": { "servers": servers }, "to": to });
    for (name, value) in more.as_object().into_iter().flatten() {
        config[name] = value.clone();
    }
    let path = directory.join("stream.json");
    std::fs::write(&path, serde_json::to_string_pretty(&config)?)?;
    Ok(path)
}

impl Stream {
    /// Closes a window by `close`, which returns the bytes of its document, and waits until the
    /// node keeps none. Fails if the stream takes `times` as many bytes of memory for it.
    pub fn sends_in_little_memory(
        &self,
        node: &Node,
        times: u64,
        close: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        self.listening()?;
        let before = Resident::of(self.pid())?.peak_kib;
        let document = close()?;
        wait_for("the window", PATIENCE, || {
            ensure!(node.unacknowledged() == 0, "{}", self.log());
            Ok(())
        })?;
        let more = Resident::of(self.pid())?.peak_kib - before;
        println!("{more} KiB for a document of {} KiB", document >> 10);
        ensure!(
            more < (times * document) >> 10,
            "{more} KiB for a document of {} KiB",
            document >> 10
        );
        Ok(())
    }

    /// Starts a stream with a configuration.
    pub fn start(config: &Path) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let log = std::fs::File::create(directory.path().join("log"))?;
        let mut command = stream_command(&[])?;
        let child = command
            .arg("-f")
            .arg(config)
            .stderr(log)
            .spawn()
            .context("twinprobe-stream runs")?;
        Ok(Self { child, directory })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The address of its `/metrics`.
    pub fn listening(&self) -> Result<String> {
        wait_for("the stream's /metrics", PATIENCE, || {
            let log = self.log();
            let address = log
                .lines()
                .find_map(|line| line.strip_prefix("listening on "));
            address.map(str::to_owned).with_context(|| log.clone())
        })
    }

    /// The value of a sample of `/metrics`.
    pub fn sample(&self, name: &str) -> Result<f64> {
        let address = self.listening()?.parse()?;
        let page = twinprobe_tests::http::request(
            &twinprobe_tests::http::Address::Tcp(address),
            "GET",
            "/metrics",
            &[],
            &[],
        )?;
        let line = page
            .text()
            .lines()
            .find(|line| line.starts_with(name))
            .map(str::to_owned);
        let line = line.with_context(|| format!("{name} in {}", page.text()))?;
        Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
    }

    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks the stream to stop, and waits for its end.
    pub fn terminate(mut self) -> Result<()> {
        // SAFETY: a plain system call on a child that has not been waited for.
        let sent = unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        ensure!(sent == 0, "it runs");
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {}", self.log());
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        log.lines()
            .rev()
            .take(30)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .for_each(|line| println!("{line}"));
    }
}
