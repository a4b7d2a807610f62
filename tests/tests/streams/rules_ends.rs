//! The ends of rules over a fleet: `--once`, unreachable receivers of notifications, mistakes, and
//! windows that no longer fit.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::rules::{marks, nodes, rule};
use crate::scene::{COLLECTOR, Node, Stream, configuration, stream_command};

/// The longest time that a stream with `--once` may take here.
const SOON: Duration = Duration::from_secs(60);

/// Runs a stream with `--once` over a rule. It must end soon.
fn once(path: &Path, nodes: &[&Node], more: &[&str]) -> Result<Output> {
    let mut command = stream_command(&["--once", "--name", COLLECTOR, "--rules"])?;
    command
        .arg(path)
        .args(more)
        .arg("--from")
        .args(nodes.iter().map(|node| node.url()));
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let ended = wait_for("the end of the stream", SOON, || {
        child.try_wait()?.context("it runs")
    });
    if ended.is_err() {
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    ended.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok(output)
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A receiver that answers from now on, and remembers identities.
fn receiver(address: SocketAddr) -> Result<Arc<Mutex<Vec<String>>>> {
    let listener = TcpListener::bind(address)?;
    let found = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&found);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let (mut identity, mut length) = (None, 0);
            for line in stream
                .by_ref()
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
            {
                let line = line.to_lowercase();
                if let Some(value) = line.strip_prefix("idempotency-key: ") {
                    identity = Some(value.to_owned());
                }
                length = line
                    .strip_prefix("content-length: ")
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(length);
            }
            let _ = stream.read_exact(&mut vec![0; length]);
            seen.lock().expect("no panic").extend(identity);
            let _ = stream
                .get_mut()
                .write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        }
    });
    Ok(found)
}

/// Closes a window by a request.
fn close(node: &Node) {
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
}

/// The period is open for an hour, one node has no window, and one is unreachable.
#[test]
fn a_stream_with_rules_ends_once_nothing_is_left() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "1h", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    let path = directory.path().join("flood.yaml");
    fs::write(
        &path,
        rule("count(ingress.packets) >= 0", "where").to_string(),
    )?;
    close(&nodes[0]);
    let output = once(&path, &[&nodes[0], &nodes[1]], &[])?;
    ensure!(
        output.status.success() && told(&output).contains("sent 1 windows"),
        "{}",
        told(&output)
    );
    ensure!(
        marks(directory.path(), "a")?.len() == 1,
        "the rule has fired"
    );
    nodes[2].daemon().pause();
    close(&nodes[1]);
    let output = once(&path, &[&nodes[1]], &["--log-format", "json"])?;
    ensure!(output.status.success(), "{}", told(&output));
    nodes[2].daemon().resume();
    // A socket at which no daemon listens.
    let mut command = stream_command(&["--once", "--name", COLLECTOR, "--rules"])?;
    command
        .arg(&path)
        .arg("--from")
        .arg(nodes[0].url())
        .arg("unix:/nonexistent/twinprobe.sock");
    let output = command.output()?;
    ensure!(
        output.status.code() == Some(1) && told(&output).contains("some are missing"),
        "{}",
        told(&output)
    );
    // No daemon has the probe.
    let mut other = rule("count(ingress.packets) >= 0", "where");
    other["watch"] = json!("none");
    fs::write(&path, other.to_string())?;
    let output = once(&path, &[&nodes[0]], &[])?;
    let said = "no daemon has the watched probe";
    ensure!(
        output.status.code() == Some(1) && told(&output).contains(said),
        "{}",
        told(&output)
    );
    Ok(())
}

/// The windows of one node fill the memory while the other node has none.
#[test]
fn a_full_memory_does_not_stop_a_stream() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "1h", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    for _ in 0..400 {
        close(&nodes[0]);
    }
    let path = directory.path().join("flood.yaml");
    fs::write(&path, rule("sum(ingress.packets) > 5", "where").to_string())?;
    let output = once(
        &path,
        &[&nodes[0], &nodes[1]],
        &["--memory", "1MiB", "--log-level", "error"],
    )?;
    ensure!(output.status.success(), "{}", told(&output));
    Ok(())
}

/// The actions after the notification are taken at once. The notification comes after a kill of the
/// stream, with the same identity.
#[test]
fn a_receiver_that_is_away_holds_up_no_action_of_a_fleet() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "500ms", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    let of: Vec<&Node> = nodes.iter().collect();
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut flood = rule("sum(ingress.packets) > 50", "where");
    flood["do"] = json!([{ "notify": format!("http://{address}/hook") }, { "mark": "many" }]);
    let path = directory.path().join("flood.yaml");
    fs::write(&path, flood.to_string())?;
    let more = json!({ "listen": "127.0.0.1:0", "rules": [path] });
    let config = configuration(directory.path(), &of, &json!([]), &more)?;
    let running = Stream::start(&config)?;
    let traffic = nodes[1].traffic()?;
    wait_for("a mark", PATIENCE, || {
        ensure!(!marks(directory.path(), "b")?.is_empty());
        Ok(())
    })?;
    drop(traffic);
    let sample =
        |name: &str| running.sample(&format!("twinprobe_stream_rule_{name}{{rule=\"flood\"}}"));
    ensure!(sample("notifications_waiting")? >= 1.0, "{}", running.log());
    let periods = sample("periods_total")?;
    wait_for("more periods", PATIENCE, || {
        ensure!(sample("periods_total")? > periods + 8.0);
        Ok(())
    })?;
    ensure!(
        running
            .log()
            .contains("a notification did not arrive; it is sent again"),
        "{}",
        running.log()
    );
    ensure!(
        nodes[1].unacknowledged() > 6,
        "the windows of the firing are needed"
    );
    let seen = marks(directory.path(), "b")?
        .into_iter()
        .collect::<BTreeSet<_>>();
    running.kill()?;
    let running = Stream::start(&config)?;
    let identities = receiver(address)?;
    wait_for("the notification", PATIENCE, || {
        ensure!(!identities.lock().expect("no panic").is_empty());
        Ok(())
    })?;
    wait_for("acknowledgements", PATIENCE, || {
        let left = nodes[1].unacknowledged();
        ensure!(left <= 4, "{left}");
        Ok(())
    })?;
    let identities: BTreeSet<String> = identities
        .lock()
        .expect("no panic")
        .iter()
        .cloned()
        .collect();
    let marks = marks(directory.path(), "b")?
        .into_iter()
        .collect::<BTreeSet<_>>();
    ensure!(
        identities.len() == marks.len() && marks == seen,
        "{identities:?}, {marks:?}, {seen:?}"
    );
    ensure!(
        identities
            .iter()
            .all(|one| one.starts_with("flood/b/") && one.ends_with("/0")),
        "{identities:?}"
    );
    running.terminate()
}

/// A field that no window has is a mistake of the rule. The message names file, line and column.
#[test]
fn mistakes_that_windows_show_are_refused_at_the_start() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "1h", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    close(&nodes[1]);
    let of: Vec<&Node> = nodes.iter().collect();
    let path = directory.path().join("wrong.yaml");
    for (text, said) in [
        (
            "when: sum(ingress.missing) > 1",
            "wrong.yaml:3:1: when, column 12: ingress has no metric \"missing\"",
        ),
        (
            "when: sum(ingress.packets) > 'a'",
            "wrong.yaml:3:1: when, column 22: > compares two of one kind",
        ),
        (
            "when: count(ingress.packets) > 1\nuntil: top(egress.packets) == ''",
            "wrong.yaml:4:1: until, column 11: ",
        ),
        (
            "when: sum(ingress.packets >",
            "wrong.yaml:3:1: when, column ",
        ),
        ("wen: sum(ingress.packets) > 1", "wen"),
    ] {
        fs::write(
            &path,
            format!("scope: fleet\nwatch: p\n{text}\ndo: [ {{ mark: many }} ]\n"),
        )?;
        for more in [&[][..], &["--dry-run"]] {
            let mut command = stream_command(&["--name", COLLECTOR, "--rules"])?;
            command
                .arg(&path)
                .args(more)
                .arg("--from")
                .args(of.iter().map(|node| node.url()));
            let mut child = command
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()?;
            let ended = wait_for("the refusal", SOON, || child.try_wait()?.context("it runs"));
            child.kill()?;
            let output = child.wait_with_output()?;
            ensure!(
                ended?.code() == Some(2) && told(&output).contains(said),
                "{said}: {}",
                told(&output)
            );
        }
    }
    ensure!(nodes[1].unacknowledged() == 1, "no window was judged");
    Ok(())
}

/// The probe is replaced by one without the metric: the rule counts its windows as unjudged and
/// reports them.
#[test]
fn windows_that_no_longer_fit_are_told() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "500ms", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    let path = directory.path().join("flood.yaml");
    fs::write(
        &path,
        rule("sum(ingress.packets) < 1000000", "where").to_string(),
    )?;
    let more = json!({ "listen": "127.0.0.1:0", "rules": [path] });
    let running = Stream::start(&configuration(
        directory.path(),
        &[&nodes[0]],
        &json!([]),
        &more,
    )?)?;
    let sample =
        |name: &str| running.sample(&format!("twinprobe_stream_rule_{name}{{rule=\"flood\"}}"));
    wait_for("the firing", PATIENCE, || {
        ensure!(sample("firings_total")? == 1.0);
        Ok(())
    })?;
    let mut other = counter_config("mon0", "XDP_PASS");
    other["ingress"]["metrics"] =
        json!([{ "name": "others", "map": "packets", "snapshot": true, "init": true }]);
    other["window"] = window.clone();
    nodes[0].daemon().put("/v1/probes/p", &other).expect(200);
    wait_for("windows that do not fit", PATIENCE, || {
        ensure!(sample("unjudged_windows_total")? >= 2.0 && sample("stopped")? == 1.0);
        Ok(())
    })?;
    let said = "windows of the watched probe can't be judged";
    ensure!(
        running.log().matches(said).count() == 1,
        "{}",
        running.log()
    );
    ensure!(
        running
            .log()
            .contains("when, column 12: ingress has no metric"),
        "{}",
        running.log()
    );
    let judged = sample("periods_total")?;
    nodes[0].deploy_again(&window);
    wait_for("windows that fit again", PATIENCE, || {
        ensure!(sample("stopped")? == 0.0 && sample("periods_total")? > judged);
        Ok(())
    })?;
    running.terminate()
}
