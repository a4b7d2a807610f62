//! Many windows in one answer.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::stream::Stream;
use twinprobe_tests::windows::{Windows, config};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::scene::{PROBE, Scene};

const NDJSON: &str = "application/x-ndjson";

/// An array with many entries without any packet in its windows.
const LARGE: &str = r#"
#include <twinprobe.h>
TP_ARRAY(large, __u64, 20000);
TP_PROBE(count, packet)
{
	__u64 *seen = tp_at_index(large, 0);
	if (seen)
		tp_add(seen, 1);
	return TP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// The lines of an answer with documents.
fn lines(windows: &Windows, query: &str) -> Result<Vec<String>> {
    let answer = windows
        .request("GET", &format!("{PROBE}/windows?documents=true&{query}"))?
        .expect(200);
    ensure!(
        answer.header("content-type") == Some(NDJSON),
        "{:?}",
        answer.headers
    );
    let text = answer
        .text()
        .strip_suffix('\n')
        .context("the end of a line")?;
    Ok(text.split('\n').map(str::to_owned).collect())
}

/// The bytes of a path below the probe's windows.
fn text(windows: &Windows, rest: &str) -> Result<String> {
    Ok(windows
        .request("GET", &format!("{PROBE}/windows{rest}"))?
        .expect(200)
        .text()
        .to_owned())
}

/// Checks an answer with shapes. Returns the number of shapes and the numbers of the windows.
fn check(windows: &Windows, query: &str, list: &str) -> Result<(usize, Vec<u64>)> {
    let lines = lines(windows, &format!("shape=true&{query}"))?;
    ensure!(lines[0] == text(windows, list)?, "{}", lines[0]);
    let listed: Value = serde_json::from_str(&lines[0])?;
    let listed = listed["windows"].as_array().context("a list")?;
    let seqs: Vec<u64> = listed
        .iter()
        .filter_map(|window| window["seq"].as_u64())
        .collect();
    let (mut shapes, mut next) = (Vec::new(), seqs.iter());
    for line in &lines[1..] {
        if let Some(shape) = line.strip_prefix("{\"shape\":") {
            shapes.push(shape.strip_suffix('}').context("a shape")?);
            continue;
        }
        let seq = next.next().context("a window of the list")?;
        ensure!(
            line.as_bytes() == windows.bytes(*seq, "json"),
            "window {seq}: {line}"
        );
        let shape = text(windows, &format!("/{seq}/shape"))?;
        ensure!(
            shapes.last() == Some(&&*shape),
            "the shape of window {seq}: {shape}"
        );
    }
    ensure!(next.next().is_none(), "windows are missing");
    Ok((shapes.len(), seqs))
}

/// The lines are the list and the documents of its windows, in order, also of sums that are stored
/// as changes, of windows before a replacement, and after a crash. Reading takes nothing.
#[test]
fn each_line_is_the_document_of_a_window() -> Result<()> {
    let window = json!({ "retain": 200, "collectors": ["c"] });
    let mut scene = Scene::new(&window)?;
    ensure!(
        lines(&scene.windows, "shape=true")?.len() == 1,
        "a list of no windows"
    );
    for count in 1..=103 {
        scene.close(count % 3)?;
    }
    scene
        .daemon
        .put(PROBE, &config(&window, &[("QUEUED", "1")]))
        .expect(200);
    for _ in 0..3 {
        scene.windows.close();
    }
    let newest = *scene.windows.seqs().last().context("windows")?;
    for round in 0..2 {
        ensure!(
            check(&scene.windows, "limit=1000", "?limit=1000")? == (2, (1..=newest).collect()),
            "{round}"
        );
        ensure!(
            check(&scene.windows, "", "?limit=100")? == (1, (1..=100).collect()),
            "the usual limit"
        );
        ensure!(check(&scene.windows, "after=3&limit=2", "?after=3&limit=2")? == (1, vec![4, 5]));
        ensure!(
            check(
                &scene.windows,
                "collector=c&limit=1",
                "?collector=c&limit=1"
            )? == (1, vec![1])
        );
        let plain = lines(&scene.windows, "limit=1000")?;
        ensure!(
            plain.len() as u64 == newest + 1,
            "{} lines without shapes",
            plain.len()
        );
        ensure!(
            scene.windows.seqs() == (1..=newest).collect::<Vec<_>>(),
            "reading takes nothing"
        );
        scene.daemon = scene
            .daemon
            .restart(libc::SIGKILL, &DaemonOptions::default())?;
    }
    scene
        .windows
        .acknowledge(newest - 1, Some("c"))?
        .expect(204);
    ensure!(check(&scene.windows, "collector=c", "?collector=c&limit=100")? == (1, vec![newest]));
    scene.bystanders.finish()
}

#[test]
fn what_can_not_be_is_refused_by_name() -> Result<()> {
    let scene = Scene::new(&json!({}))?;
    for (query, name) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x&documents=true", "limit"),
        ("documents=2", "documents"),
        ("documents=true&shape=x", "shape"),
        ("shape=x", "shape"),
        ("documents=true&format=json", "format"),
        ("documents=true&wait=301", "wait"),
        ("documents=true&collector=c", "collector"),
    ] {
        let answer = scene
            .windows
            .request("GET", &format!("{PROBE}/windows?{query}"))?
            .expect(400);
        let detail = answer.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        ensure!(detail.contains(name), "{query}: {detail}");
    }
    let path = format!("{PROBE}/windows?documents=true");
    scene
        .daemon
        .request("GET", &path, &[("accept", "application/xml")], b"")
        .expect(406);
    scene
        .daemon
        .request(
            "GET",
            &path,
            &[("accept", "application/x-ndjson;q=0.1, */*;q=0")],
            b"",
        )
        .expect(200);
    scene
        .daemon
        .get("/v1/probes/other/windows?documents=true")
        .expect(404);
    scene.bystanders.finish()
}

/// Clients that read nothing cost little memory and delay no window. A window that is removed
/// before its turn is `null`.
#[test]
fn those_who_read_slowly_cost_little_and_see_what_has_gone() -> Result<()> {
    const WINDOWS: u64 = 60;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let metric = json!({ "name": "large", "map": "large", "snapshot": true, "init": true });
    let ingress = json!({ "source": LARGE, "metrics": [metric] });
    let config = json!({ "interface": "mon0", "ingress": ingress, "window": { "retain": 500 } });
    daemon.put(PROBE, &config).expect(201);
    let windows = Windows::of(&daemon, "p");
    (0..WINDOWS).for_each(|_| drop(windows.close()));
    let path = format!("{PROBE}/windows?documents=true&limit=1000");
    let whole = lines(&windows, "limit=1000")?;
    let bytes: usize = whole.iter().map(String::len).sum();
    ensure!(bytes > 20 << 20, "only {bytes} bytes");
    // The bytes in the store end a list before its limit.
    let listed = whole.len() as u64 - 1;
    ensure!(listed == WINDOWS, "{listed} windows");
    let before = daemon.rss_kib();
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = Stream::open(&daemon, &path, NDJSON)?;
        client.line()?.context("the list")?;
        clients.push(client);
        windows.close();
    }
    let grown = daemon.rss_kib().saturating_sub(before);
    ensure!(
        grown < 40 << 10,
        "{grown} KiB for 20 clients of {bytes} bytes each"
    );
    let newest = *windows.seqs().last().context("windows")?;
    windows.acknowledge(newest, None)?.expect(204);
    let (mut client, mut seen) = (clients.swap_remove(0), BTreeMap::new());
    for document in &whole[1..] {
        let text = client.line()?.context("a line for each window")?;
        let is_gone = text == "null";
        ensure!(is_gone || text == *document, "{} bytes differ", text.len());
        *seen.entry(is_gone).or_insert(0) += 1;
    }
    ensure!(client.line()?.is_none(), "the list has {WINDOWS} windows");
    ensure!(
        seen.len() == 2,
        "{seen:?}: the first documents were on their way"
    );
    clients.into_iter().for_each(drop);
    Ok(())
}

/// The number of stored bytes also limits an answer, but an answer has at least one window.
#[test]
fn an_answer_has_no_more_than_some_bytes_of_windows() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let metric = json!({ "name": "large", "map": "large", "snapshot": true, "init": true });
    let source = LARGE.replace("20000", "400000");
    let ingress = json!({ "source": source, "metrics": [metric] });
    let config = json!({ "interface": "mon0", "ingress": ingress, "window": { "retain": 500 } });
    daemon.put(PROBE, &config).expect(201);
    let windows = Windows::of(&daemon, "p");
    (0..6).for_each(|_| drop(windows.close()));
    let bytes: Vec<u64> = windows
        .list("")
        .windows
        .iter()
        .map(|window| window.bytes)
        .collect();
    let fit = bytes
        .iter()
        .scan(0, |sum, bytes| {
            *sum += bytes;
            Some(*sum)
        })
        .filter(|sum| *sum <= 16 << 20)
        .count();
    ensure!((1..6).contains(&fit), "{bytes:?}");
    let mut client = Stream::open(&daemon, &format!("{PROBE}/windows?documents=true"), NDJSON)?;
    let list = client.json()?;
    ensure!(
        list["windows"].as_array().map(Vec::len) == Some(fit),
        "{list}"
    );
    let read = std::io::copy(&mut client.by_ref().take(u64::MAX), &mut std::io::sink())?;
    ensure!(read > 16 << 20, "{read} bytes");
    Ok(())
}
