//! Test of the demo (`tests/demo.sh`), which compares counts with sent packets, and of its remains.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use twinprobe_tests::http::{Address, Response, request};
use twinprobe_tests::wait::{PATIENCE, wait_for};

/// A demo that is kept. Drop ends it as Ctrl-C does.
struct Demo {
    script: Child,
    temporary: TempDir,
}

impl Demo {
    fn start() -> Result<Self> {
        let temporary = tempfile::tempdir()?;
        let binary = twinprobe_tests::binary()?;
        // A shell cannot trap a signal that its parent ignores, as parents of processes in the
        // background do.
        let script = Command::new("env")
            .args(["--default-signal=INT", "bash", "tests/demo.sh", "--built"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .env("DEMO_BIN", binary.parent().context("a directory")?)
            .env("KEEP", "1")
            .env("TMPDIR", temporary.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start the demo")?;
        Ok(Self { script, temporary })
    }

    /// Sends a signal to all processes of the demo, as a terminal does. Returns false if there is
    /// none.
    fn signal(&self, signal: &str) -> Result<bool> {
        let group = format!("-{}", self.script.id());
        let output = Command::new("kill").args([signal, "--", &group]).output()?;
        Ok(output.status.success())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.signal("-INT");
        let _ = self.script.wait();
    }
}

/// Returns a line without its numbers and the width of its columns.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for character in line
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
    {
        match character {
            '0'..='9' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            other => shape.push(other),
        }
    }
    shape
}

/// Compares the demo's output in the README, where `...` stands for lines left out, with its real
/// output.
fn compare_with_readme(said: &str) -> Result<()> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md"))?;
    let (_, shown) = readme
        .split_once("```text\n== ")
        .context("the README shows a step of the demo")?;
    let (shown, _) = shown.split_once("\n```").context("the end of the step")?;
    let said: BTreeSet<String> = said.lines().map(shape).collect();
    for line in format!("== {shown}").lines().filter(|line| *line != "...") {
        ensure!(
            said.contains(&shape(line)),
            "the demo does not say {line:?}: {said:#?}"
        );
    }
    Ok(())
}

fn get(address: SocketAddr, path: &str, token: &str) -> Result<Response> {
    let authorization = format!("Bearer {token}");
    let host = address.to_string();
    let headers = [("authorization", authorization.as_str()), ("host", &host)];
    request(&Address::Tcp(address), "GET", path, &headers, b"")
}

#[test]
fn a_demo_that_is_kept_shows_traffic_and_leaves_nothing() -> Result<()> {
    let mut demo = Demo::start()?;
    let mut stderr = demo.script.stderr.take().context("piped")?;
    let errors = thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let mut lines = BufReader::new(demo.script.stdout.take().context("piped")?).lines();
    let mut said = String::new();
    let link = loop {
        let Some(line) = lines.next().transpose()? else {
            bail!(
                "the demo has ended:\n{said}{}",
                errors.join().expect("reads to the end")?
            )
        };
        said += &format!("{line}\n");
        if let Some(link) = line.trim().strip_prefix("http://") {
            break link.to_owned();
        }
    };
    for sum in [
        "to the server: 100010 packets, counted 100010",
        "all windows: 400000 packets, counted 400000",
    ] {
        ensure!(said.contains(sum), "{sum}:\n{said}");
    }

    compare_with_readme(&said)?;

    let (address, token) = link.split_once("/#token=").context("a token")?;
    let address: SocketAddr = address.parse()?;
    ensure!(address.ip().is_loopback(), "{address}");
    let console = get(address, "/", token)?.expect(200);
    ensure!(
        console.text().contains("<title>twinprobe"),
        "{}",
        console.text()
    );
    let seen = || -> Result<u64> {
        let document = get(address, "/v1/probes/top-talkers/metrics", token)?
            .expect(200)
            .json();
        let entry = &document["ingress"]["talkers_all"]["entries"][0]["value"]["packets"];
        entry.as_u64().with_context(|| document.to_string())
    };
    let before = seen()?;
    wait_for("more packets", PATIENCE, || {
        let now = seen()?;
        ensure!(now > before, "{now} packets, before {before}");
        Ok(())
    })?;

    let id = format!("tp-{}", demo.script.id());
    let pins = format!("/sys/fs/bpf/twinprobe-{id}");
    let namespaces = || -> Result<Vec<String>> {
        let names = fs::read_dir("/run/netns")?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: Vec<_> = names.collect::<Result<_>>()?;
        Ok(names
            .into_iter()
            .filter(|name| name.starts_with(&format!("{id}-")))
            .collect())
    };
    ensure!(
        Path::new(&pins).exists() && namespaces()?.len() == 2,
        "what is looked for below is there while the demo runs"
    );

    ensure!(demo.signal("-INT")?, "the demo runs");
    let rest: Vec<String> = lines.collect::<Result<_, _>>()?;
    let status = demo.script.wait()?;
    let errors = errors.join().expect("reads to the end")?;
    ensure!(
        status.success() && errors.is_empty(),
        "{status}: {rest:?}\n{errors}"
    );
    wait_for("the end of all processes", PATIENCE, || {
        ensure!(!demo.signal("-0")?, "processes are left");
        Ok(())
    })?;
    ensure!(
        namespaces()?.is_empty() && !Path::new(&pins).exists(),
        "namespaces {:?}, pins at {pins}",
        namespaces()?
    );
    let files = fs::read_dir(demo.temporary.path())?.collect::<Result<Vec<_>, _>>()?;
    ensure!(files.is_empty(), "{files:?}");
    Ok(())
}
