//! The start of a daemon: when it becomes ready, its answers until then, and starts without clang
//! or a log.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http::{self, Address};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Store, Topology, binary, store};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The log line of a daemon that waits for a test.
const WAITS: &str = "waits for a test";

fn path(name: &str) -> String {
    format!("/v1/probes/{name}")
}

fn live() -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    config
}

fn counts(daemon: &Daemon) -> [u64; 3] {
    NAMES.map(|name| {
        total(
            &daemon.json(&format!("/v1/probes/{name}/metrics")),
            "ingress",
            "packets",
        )
    })
}

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// Returns the options of a daemon that waits at each step until a file exists, and these files.
fn waiting(directories: &Directories, steps: &[&str]) -> (DaemonOptions, Vec<PathBuf>) {
    let files: Vec<PathBuf> = steps
        .iter()
        .map(|step| directories.temporary().join(format!("go-{step}")))
        .collect();
    let steps: Vec<String> = steps
        .iter()
        .zip(&files)
        .map(|(step, file)| format!("{step}={}", file.display()))
        .collect();
    (
        DaemonOptions::default().environment("TWINPROBE_WAIT_AT", steps.join(",")),
        files,
    )
}

#[test]
fn early_requests_are_told_to_wait() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &live()).expect(201);
    }
    let directories = daemon.kill()?;
    let (options, files) = waiting(&directories, &["claimed"]);
    let mut generator = generator(&topology)?;
    for ends in [true, false] {
        let daemon = Daemon::spawn_in(topology.monitor(), &options, directories.clone())?;
        ensure!(daemon.wait_for_log(WAITS, PATIENCE), "{}", daemon.log());
        daemon.get("/healthz").expect(200);
        daemon.get("/openapi.yaml").expect(200);
        for early in [
            "/readyz",
            "/v1/probes",
            "/v1/probes/a",
            "/v1/probes/a/metrics",
            "/metrics",
            "/v1/capabilities",
        ] {
            let answer = daemon.get(early).expect(503);
            ensure!(
                answer.header("retry-after") == Some("1"),
                "{early}: {answer:?}"
            );
            ensure!(
                answer.text().contains("taken over"),
                "{early}: {}",
                answer.text()
            );
        }
        daemon.put(&path("d"), &live()).expect(503);
        daemon.delete(&path("a")).expect(503);
        ensure!(!daemon.log().contains("listening on"), "{}", daemon.log());
        generator.send(100)?;
        if ends {
            // A stopped daemon does not wait for its unfinished deployments.
            let (exit, _) = daemon.terminate()?;
            ensure!(exit.success(), "{exit}");
        } else {
            fs::write(&files[0], "")?;
            ensure!(
                daemon.wait_for_log("listening on", PATIENCE),
                "{}",
                daemon.log()
            );
            daemon.get("/readyz").expect(200);
            assert_eq!(counts(&daemon), [200; 3]);
        }
    }
    Ok(())
}

/// Returns the number of bytes, as the kernel counts memory, that the other end has not read.
fn unread(stream: &UnixStream) -> Result<i32> {
    let mut left = 0;
    // SAFETY: the request writes one int, to which the pointer leads.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) };
    ensure!(result == 0, "TIOCOUTQ: {}", io::Error::last_os_error());
    Ok(left)
}

/// A daemon that is stopped before it is ready has an incomplete list of probes, which no client
/// may get.
#[test]
fn a_daemon_that_stops_before_it_is_ready_answers_no_early_request() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put(&path("a"), &live()).expect(201);
    let directories = daemon.kill()?;
    let (options, _) = waiting(&directories, &["claimed"]);
    let daemon = Daemon::spawn_in(topology.monitor(), &options, directories.clone())?;
    ensure!(daemon.wait_for_log(WAITS, PATIENCE), "{}", daemon.log());
    // Draining waits for a request whose beginning the daemon has read.
    let mut early = UnixStream::connect(directories.socket())?;
    early.write_all(b"GET /v1/probes HTTP/1.1\r\n")?;
    wait_for("the daemon to read", PATIENCE, || {
        let left = unread(&early)?;
        ensure!(left == 0, "{left} bytes left");
        Ok(())
    })?;
    daemon.signal(libc::SIGTERM);
    ensure!(
        daemon.wait_for_log("draining", PATIENCE),
        "{}",
        daemon.log()
    );
    let mut answer = String::new();
    early.write_all(b"host: daemon\r\n\r\n")?;
    early.read_to_string(&mut answer)?;
    ensure!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("the daemon is stopping"),
        "{answer}"
    );
    let (exit, _) = daemon.terminate()?;
    ensure!(exit.success(), "{exit}");
    Ok(())
}

#[test]
fn a_start_that_fails_leaves_no_socket() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::new()?);
    let (options, files) = waiting(&directories, &["opened"]);
    let daemon = Daemon::spawn_in(topology.monitor(), &options, Arc::clone(&directories))?;
    ensure!(daemon.wait_for_log(WAITS, PATIENCE), "{}", daemon.log());
    ensure!(
        directories.socket().exists(),
        "the daemon listens before it restores"
    );
    Store::open(&directories)?.execute("DROP TABLE probes")?;
    fs::write(&files[0], "")?;
    ensure!(!daemon.wait_for_start(PATIENCE), "{}", daemon.log());
    ensure!(
        daemon.log().contains("the stored probes can't be read"),
        "{}",
        daemon.log()
    );
    ensure!(
        !directories.socket().exists(),
        "{}",
        directories.socket().display()
    );
    Ok(())
}

/// During a reading of a probe, its status and the list do not wait; only the status has the
/// source.
#[test]
fn the_list_waits_for_nobody_and_has_no_sources() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon
            .put(&path(name), &counter_config("mon0", "XDP_PASS"))
            .expect(201);
    }
    let directories = daemon.kill()?;
    let (options, files) = waiting(&directories, &["flipped"]);
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    let address = daemon.address();
    let reader =
        thread::spawn(move || http::request(&address, "GET", "/v1/probes/b/metrics", &[], b""));
    ensure!(daemon.wait_for_log(WAITS, PATIENCE), "{}", daemon.log());
    let listed = daemon.json("/v1/probes");
    let statuses = NAMES.map(|name| daemon.json(&path(name)));
    let list = daemon.client(&["list"])?;
    ensure!(
        !reader.is_finished(),
        "the probe was not being read any more"
    );
    fs::write(&files[0], "")?;
    reader.join().expect("no panic")?.expect(200);
    let text = String::from_utf8(list.stdout)?;
    for (i, status) in statuses.iter().enumerate() {
        ensure!(
            status["config"]["ingress"]["source"].is_string(),
            "{status}"
        );
        let mut expected = status.clone();
        expected["config"]["ingress"]
            .as_object_mut()
            .context("an object")?
            .remove("source");
        assert_eq!(listed["probes"][i], expected);
        ensure!(
            text.contains(&format!("\n{}", NAMES[i])) && text.contains("running"),
            "{text}"
        );
    }
    Ok(())
}

/// Running probes are adopted without a compiler; the status of a probe that needs one names the
/// missing part.
#[test]
fn no_clang_is_no_reason_not_to_start() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology)?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &live()).expect(201);
    }
    generator.send(100)?;
    let directories = daemon.kill()?;
    let clang = directories.temporary().join("clang");
    let options = DaemonOptions::default().environment("TWINPROBE_CLANG", &clang);
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    daemon.get("/readyz").expect(200);
    generator.send(100)?;
    assert_eq!(counts(&daemon), [200; 3]);
    let compiler = daemon.json("/v1/capabilities")["compiler"].clone();
    ensure!(
        compiler["version"] == "" && compiler["error"].is_string(),
        "{compiler}"
    );
    let before = daemon.json("/v1/probes");
    let mut other = live();
    other["ingress"]["metrics"][0]["help"] = json!("other");
    let refused = [
        daemon.put(&path("a"), &other),
        daemon.put(&path("d"), &live()),
        daemon.post("/v1/validate", &live()),
    ];
    for answer in refused {
        let problem = answer.expect(503).json();
        let message = problem["errors"][0]["message"]
            .as_str()
            .with_context(|| format!("{problem}"))?;
        ensure!(
            problem["errors"][0]["stage"] == "compile" && message.contains("clang"),
            "{problem}"
        );
    }
    assert_eq!(daemon.json("/v1/probes"), before);
    daemon.delete(&path("c")).expect(204);

    // After a reboot no programs can be adopted: the probes wait and show the reason.
    let directories = daemon.kill()?;
    fs::remove_dir_all(directories.bpffs())?;
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    for name in ["a", "b"] {
        let status = daemon.json(&path(name));
        ensure!(
            status["state"] == "failed"
                && status["reason"]
                    .as_str()
                    .is_some_and(|r| r.contains("clang")),
            "{status}"
        );
    }
    // A compiler that is installed later is used.
    symlink(
        which("clang")
            .or_else(|| which("clang-14"))
            .context("clang")?,
        &clang,
    )?;
    daemon.put(&path("a"), &live()).expect(200);
    let mut daemon = daemon.restart(libc::SIGTERM, &options)?;
    for _ in 0..2 {
        let states = ["a", "b"].map(|name| daemon.json(&path(name))["state"].clone());
        assert_eq!(states, ["running", "running"]);
        daemon = daemon.restart(libc::SIGKILL, &options)?;
    }
    Ok(())
}

fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// A half-attached replacement of a killed daemon uses other maps than the old programs: no window
/// is closed before all packets meet the same programs again.
#[test]
fn windows_are_closed_once_dispatchers_are_settled() -> Result<()> {
    let topology = Topology::new()?;
    let mut windows = counter_config("mon0", "XDP_PASS");
    windows["window"] = json!({ "interval": "10ms", "retain": 100_000 });
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &windows).expect(201);
    }
    let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", "attached");
    let daemon = Daemon::start_in(topology.monitor(), &dying, daemon.kill()?)?;
    let load = generator(&topology)?.spawn(Load::default());
    ensure!(
        daemon
            .try_request("PUT", &path("b"), &[], live().to_string().as_bytes())
            .is_err(),
        "not reached"
    );
    let directories = daemon.kill()?;
    let (options, files) = waiting(&directories, &["claimed"]);
    let newest = || -> Result<Vec<u64>> {
        let store = Store::open(&directories)?;
        NAMES.iter().map(|name| store.newest(name)).collect()
    };
    let before = newest()?;
    let daemon = Daemon::spawn_in(topology.monitor(), &options, directories.clone())?;
    ensure!(daemon.wait_for_log(WAITS, PATIENCE), "{}", daemon.log());
    let arrived = load.arrived();
    wait_for("further packets", PATIENCE, || {
        ensure!(
            load.arrived() > arrived + 100_000,
            "{} after {arrived}",
            load.arrived()
        );
        Ok(())
    })?;
    assert_eq!(newest()?, before, "windows were closed");
    fs::write(&files[0], "")?;
    ensure!(
        daemon.wait_for_log("listening on", PATIENCE),
        "{}",
        daemon.log()
    );
    let again = load.arrived();
    wait_for("packets for the next windows", PATIENCE, || {
        ensure!(
            load.arrived() > again + 100_000,
            "{} after {again}",
            load.arrived()
        );
        Ok(())
    })?;
    let sent = load.stop()?;
    for name in NAMES {
        daemon
            .request("POST", &format!("/v1/probes/{name}/windows"), &[], b"")
            .expect(201);
        let windows = Windows::of(&daemon, name);
        let counted: u64 = windows
            .seqs()
            .iter()
            .map(|seq| total(&windows.get(*seq), "ingress", "packets"))
            .sum();
        assert_eq!(counted, sent, "{name}");
    }
    Ok(())
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let second = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        daemon.directories(),
    );
    let error = format!("{:#}", second.expect_err("two daemons on one state"));
    assert!(error.contains("in use by another twinprobe"), "{error}");
    daemon.get("/healthz").expect(200);
    Ok(())
}

/// A store with a damaged head or a later format stays as it is, and so do the probes in the
/// kernel.
#[test]
fn a_store_that_is_none_or_of_a_later_version_is_refused() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology)?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &live()).expect(201);
    }
    generator.send(100)?;
    let (_, directories) = daemon.terminate()?;
    let file = store::file(&directories);
    let whole = fs::read(&file)?;
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let later = "has format 77, and this version of twinprobe knows formats up to";
    let none = "is damaged and stays as it is: its head is not that of a store";
    for (content, says, advice) in [
        (with(60, &77_u32.to_be_bytes()), later, "use a later one"),
        (with(0, b"s"), none, "move the file away"),
        (with(68, b"xxxx"), none, "move the file away"),
        (whole[..50].to_vec(), none, "move the file away"),
        (b"some text".to_vec(), none, "move the file away"),
    ] {
        fs::write(&file, &content)?;
        let daemon = Daemon::spawn_in(
            topology.monitor(),
            &DaemonOptions::default(),
            Arc::clone(&directories),
        )?;
        ensure!(
            !daemon.wait_for_start(PATIENCE),
            "it has started: {}",
            daemon.log()
        );
        // The last lines of the log may arrive after the end of the daemon.
        daemon.wait_for_log("twinprobe: ", PATIENCE);
        let log = daemon.log();
        for word in [file.to_string_lossy().as_ref(), says, advice] {
            ensure!(log.contains(word), "{word:?} is missing: {log}");
        }
        let (exit, _) = daemon.terminate()?;
        assert_eq!(exit.code(), Some(1), "{log}");
        ensure!(fs::read(&file)? == content, "{says}: the store was changed");
        generator.send(10)?;
    }
    fs::write(&file, &whole)?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    assert_eq!(counts(&daemon), [150; 3]);
    Ok(())
}

#[test]
fn the_daemon_describes_itself() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.get("/healthz").expect(200);
    daemon.get("/readyz").expect(200);
    assert!(
        daemon
            .get("/openapi.yaml")
            .expect(200)
            .text()
            .starts_with("openapi: 3.1")
    );
    let report = daemon
        .post("/v1/validate", &counter_config("mon0", "XDP_PASS"))
        .expect(200)
        .json();
    assert_eq!(report["valid"], true);
    assert_eq!(report["metrics"]["ingress"][0]["type"], "array");
    assert_eq!(daemon.json("/v1/probes"), json!({ "probes": [] }));
    Ok(())
}

#[test]
fn a_log_that_nobody_reads_fails_no_request() -> Result<()> {
    let directories = Directories::new()?;
    let mut daemon = Command::new(binary()?)
        .arg("serve")
        .args([
            "--listen".into(),
            format!("unix:{}", directories.socket().display()),
        ])
        .arg("--state-dir")
        .arg(directories.state())
        .arg("--bpffs")
        .arg(directories.bpffs())
        .stderr(Stdio::piped())
        .spawn()?;
    let log = BufReader::new(daemon.stderr.take().context("a log")?);
    let ready = log
        .lines()
        .any(|line| line.is_ok_and(|line| line.starts_with("listening on")));
    // The log is closed now, and each request writes a line.
    let address = Address::Unix(directories.socket());
    let answers = [(); 2].map(|()| http::request(&address, "GET", "/healthz", &[], b""));
    daemon.kill()?;
    daemon.wait()?;
    assert!(ready);
    for answer in answers {
        assert_eq!(answer?.status, 200);
    }
    Ok(())
}
