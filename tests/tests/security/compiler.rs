//! The compiler's confinement, as the daemon under the shipped unit sets it up, and what happens
//! without it.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::unit::as_under_the_unit;
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, scaled, timed};

/// Less than the time that a daemon gives a compilation.
const LIMIT: Duration = Duration::from_secs(15);
/// The user of the compiler.
const USER: &str = "65533";

/// Returns a source with 2^40 macro expansions, each to nothing.
fn endless() -> String {
    let doubled: String = (1..=40)
        .map(|n| format!("#define A{n} A{0} A{0}\n", n - 1))
        .collect();
    format!("#define A0\n{doubled}A40\n")
}

/// Sends a request to compile something endless. The compilation continues until the stream is
/// dropped.
fn compile_endlessly(daemon: &Daemon) -> Result<UnixStream> {
    let body = json!({ "interface": "mon0", "ingress": { "source": endless() } }).to_string();
    let mut stream = UnixStream::connect(daemon.directories().socket())?;
    let head =
        "POST /v1/validate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len())?;
    Ok(stream)
}

/// Returns the running processes that the daemon has started.
fn children(daemon: &Daemon) -> Vec<String> {
    let parent = daemon.pid().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let is_child = |id: &String| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        field(&status, "PPid").is_some_and(|of| of == [&parent])
    };
    ids.filter(is_child).collect()
}

/// Returns the words of a line of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().collect())
}

/// Waits until this many child processes of the daemon have become clang, and returns them.
fn compilers(daemon: &Daemon, count: usize) -> Result<Vec<String>> {
    wait_for("compilers", LIMIT, || {
        let mut found = children(daemon);
        found.retain(|id| {
            fs::read_to_string(format!("/proc/{id}/comm"))
                .is_ok_and(|name| name.starts_with("clang"))
        });
        ensure!(found.len() == count, "{found:?}");
        Ok(found)
    })
}

/// Waits until a compiler can read its whole source: until the daemon has closed its end of the
/// pipe. A compiler whose source was cut off ends by itself.
fn wait_for_source(daemon: &Daemon, compiler: &str) -> Result<()> {
    let pipe = fs::read_link(format!("/proc/{compiler}/fd/0"))?;
    wait_for("the end of the source", LIMIT, || {
        let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid()))?.flatten();
        let held = open
            .filter(|file| fs::read_link(file.path()).is_ok_and(|file| file == pipe))
            .count();
        ensure!(held == 0, "the daemon holds {}", pipe.display());
        Ok(())
    })
}

#[test]
fn it_has_no_rights_and_ends_with_its_request() -> Result<()> {
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let options =
        as_under_the_unit(temporary.path(), &[])?.environment("A_SECRET", "of the daemon");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    assert_eq!(
        daemon.json("/v1/capabilities")["compiler"]["confined"],
        true
    );

    let request = compile_endlessly(&daemon)?;
    let compiler = compilers(&daemon, 1)?.remove(0);
    let read = |name: &str| {
        fs::read(format!("/proc/{compiler}/{name}"))
            .map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let status = read("status")?;
    let is = |name: &str| field(&status, name).unwrap_or_default();
    assert_eq!(is("Uid"), [USER; 4]);
    assert_eq!(is("Gid"), [USER; 4]);
    assert_eq!(is("Groups"), [""; 0]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(is(set), ["0000000000000000"], "{set}");
    }
    assert_eq!((is("NoNewPrivs"), is("Seccomp")), (vec!["1"], vec!["2"]));
    assert_eq!(read("oom_score_adj")?.trim(), "1000");
    let environment = read("environ")?;
    let names: Vec<&str> = environment
        .split('\0')
        .filter_map(|pair| Some(pair.split_once('=')?.0))
        .collect();
    assert!(
        names
            .iter()
            .all(|name| ["PATH", "LC_ALL", "LD_LIBRARY_PATH"].contains(name)),
        "{names:?}"
    );
    wait_for("its libraries to be loaded", LIMIT, || {
        let files = fs::read_dir(format!("/proc/{compiler}/fd"))?;
        let files = files.map(|entry| Ok(fs::read_link(entry?.path())?.display().to_string()));
        let mut files: Vec<String> = files.collect::<Result<_>>()?;
        files.retain(|file| !file.starts_with("pipe:"));
        // The view of the headers, and the headers that the daemon brings with it.
        ensure!(
            files.iter().all(|file| file.starts_with("/memfd:")) && files.len() > 1,
            "{files:?}"
        );
        Ok(())
    })?;

    drop(request);
    wait_for("its end", LIMIT, || {
        ensure!(children(&daemon).is_empty(), "{:?}", children(&daemon));
        Ok(())
    })?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    bystanders.finish()
}

/// The daemon needs CAP_KILL: without it a compilation continues although no client waits.
#[test]
fn without_its_capability_the_daemon_ends_no_compilation() -> Result<()> {
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let options = as_under_the_unit(temporary.path(), &["CAP_KILL"])?;
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let request = compile_endlessly(&daemon)?;
    let compiler = compilers(&daemon, 1)?.remove(0);
    wait_for_source(&daemon, &compiler)?;
    drop(request);
    let ended = wait_for("its end", Duration::from_secs(1), || {
        ensure!(children(&daemon).is_empty(), "it goes on");
        Ok(())
    });
    // SAFETY: two numbers; the process is a child of the daemon, which has not waited for it.
    unsafe { libc::kill(compiler.parse()?, libc::SIGKILL) };
    assert!(ended.is_err(), "CAP_KILL is not needed");
    Ok(())
}

/// The answer and the capabilities name the missing part and the remedy; probes that run continue.
#[test]
fn without_a_means_of_confinement_nothing_is_compiled() -> Result<()> {
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/before", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let lax = "--allow-unconfined-compiler";
    for (missing, word) in [
        ("landlock_create_ruleset", "Landlock"),
        ("CAP_SETUID", "CAP_SETUID"),
        ("CAP_SETGID", "CAP_SETGID"),
        ("seccomp", "confined, it does not compile"),
    ] {
        let options = as_under_the_unit(temporary.path(), &[missing])?;
        daemon = daemon.restart(libc::SIGTERM, &options)?;
        for (method, path) in [("PUT", "/v1/probes/p"), ("POST", "/v1/validate")] {
            let body = counter_config("mon0", "XDP_PASS").to_string();
            let answer = daemon.request(
                method,
                path,
                &[("content-type", "application/json")],
                body.as_bytes(),
            );
            let detail = answer.expect(503).json()["detail"].to_string();
            assert!(
                detail.contains(word) && detail.contains(lax),
                "{missing}: {detail}"
            );
        }
        daemon.get("/v1/probes/p").expect(404);
        daemon.json("/v1/probes/before/metrics");
        let found = daemon.json("/v1/capabilities")["compiler"].clone();
        assert_eq!(found["confined"], false);
        assert!(
            found["error"]
                .as_str()
                .is_some_and(|error| error.contains(word)),
            "{found}"
        );

        daemon = daemon.restart(libc::SIGTERM, &options.argument(lax))?;
        assert!(
            daemon.log().contains("the compiler is not confined"),
            "{}",
            daemon.log()
        );
        daemon
            .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
            .expect(201);
        let found = daemon.json("/v1/capabilities")["compiler"].clone();
        assert!(
            found["confined"] == false && found.get("error").is_none(),
            "{found}"
        );
        daemon.delete("/v1/probes/p").expect(204);
    }
    Ok(())
}

/// Endless compilations on every processor hold up no reading.
#[test]
fn readings_are_answered_beside_endless_compilations() -> Result<()> {
    beside_endless_compilations(|daemon, _| {
        let running = children(daemon);
        reading(daemon);
        // A reading that waited for the compilers would have outlived them.
        ensure!(
            children(daemon).iter().any(|child| running.contains(child)),
            "all compilers have ended"
        );
        (0..20).for_each(|_| reading(daemon));
        Ok(())
    })
}

#[timed("the latency of readings beside compilers and without them")]
fn readings_keep_their_latency_beside_endless_compilations() -> Result<()> {
    beside_endless_compilations(|daemon, usual| {
        let beside = p99(daemon);
        println!("status and window: p99 {beside:?}, usually {usual:?}");
        // Other work on this machine may be slow as well.
        ensure!(
            beside < Duration::from_millis(100).max(2 * usual),
            "{beside:?}, usually {usual:?}"
        );
        Ok(())
    })
}

fn reading(daemon: &Daemon) {
    daemon.get("/v1/probes/p").expect(200);
    daemon.json("/v1/probes/p/metrics");
}

/// Returns the time within which 99 % of the readings are answered.
fn p99(daemon: &Daemon) -> Duration {
    let timed = |_| {
        let begun = Instant::now();
        reading(daemon);
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..scaled(50, 2_000)).map(timed).collect();
    times.sort();
    times[times.len() * 99 / 100]
}

/// Runs `check` while compilers keep every processor busy, with the [`p99`] without them.
fn beside_endless_compilations(check: impl FnOnce(&Daemon, Duration) -> Result<()>) -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start_with(topology.monitor(), &DaemonOptions::default())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let usual = p99(&daemon);
    let requests: Vec<UnixStream> = (0..8)
        .map(|_| compile_endlessly(&daemon))
        .collect::<Result<_>>()?;
    compilers(&daemon, std::thread::available_parallelism()?.get().min(8))?;
    check(&daemon, usual)?;
    drop(requests);
    wait_for("their ends", LIMIT, || {
        ensure!(children(&daemon).is_empty(), "{:?}", children(&daemon));
        Ok(())
    })
    .context("compilations outlive their requests")?;
    bystanders.finish()
}
