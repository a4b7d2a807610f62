//! Rules over the windows of three nodes, each with a real daemon. The stream that runs them is
//! killed in between.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::webhook;

use crate::scene::{COLLECTOR, Node, Stream, configuration, stream, stream_command};

/// A key that signs notifications.
const KEY: &str = "a key of the fleet, 32 bytes long";

/// A stream that runs a rule. A drop kills the process.
struct Running(Child);

impl Running {
    fn start(rule: &Path, nodes: &[Node]) -> Result<Self> {
        let mut command = stream_command(&["--name", COLLECTOR, "--rules"])?;
        command
            .arg(rule)
            .arg("--from")
            .args(nodes.iter().map(Node::url));
        Ok(Self(
            command
                .stderr(Stdio::null())
                .spawn()
                .context("twinprobe-stream runs")?,
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A rule that deploys the probe `fine` where the condition holds.
pub fn rule(when: &str, on: &str) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config
        .as_object_mut()
        .expect("an object")
        .remove("interface");
    json!({
        "scope": "fleet", "on": on, "watch": "p", "when": when, "cooldown": "0s",
        "do": [{ "apply": { "name": "fine", "config": config, "expires": "10m" } }, { "mark": "many" }],
    })
}

/// Starts three nodes, whose audit logs are in this folder.
pub fn nodes(window: &Value, folder: &Path) -> Result<Vec<Node>> {
    let start = |name: &str| {
        let log = folder.join(name).display().to_string();
        Node::with(name, &["--audit-log", &log])
    };
    let nodes = ["a", "b", "c"]
        .map(start)
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    nodes.iter().for_each(|node| node.deploy(window));
    Ok(nodes)
}

/// Waits until the rule has judged windows of each node: `all` are the nodes that it knows.
fn wait_for_windows_of_all(nodes: &[Node]) -> Result<()> {
    for node in nodes {
        wait_for("a judged window", PATIENCE, || {
            let list = node
                .daemon()
                .json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
            ensure!(list["after"].as_u64() > Some(0), "{list}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the texts of the marks in the audit log of a node.
pub fn marks(folder: &Path, node: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(folder.join(node))?;
    let lines = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<Value>, _>>()?;
    let marks = lines
        .iter()
        .filter(|line| line["what"] == "POST /v1/probes/p/mark" && line["outcome"] == 204);
    Ok(marks
        .map(|line| line["message"].as_str().unwrap_or_default().to_owned())
        .collect())
}

/// Returns the creations and removals of `fine` at a node, with the reasons.
fn changes(node: &Node) -> Vec<(String, String)> {
    let history = node.daemon().json("/v1/history");
    let entries = history["history"].as_array().cloned().unwrap_or_default();
    let own = entries.iter().filter(|entry| entry["probe"] == "fine");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    own.map(|entry| (text(&entry["change"]), text(&entry["message"])))
        .collect()
}

fn wait_for_fine(node: &Node, is_there: bool) -> Result<()> {
    wait_for("the probe of the rule", PATIENCE, || {
        let status = node.daemon().get("/v1/probes/fine").status;
        ensure!((status == 200) == is_there, "{status}");
        Ok(())
    })
}

#[test]
fn a_rule_acts_where_it_holds_and_goes_on_after_a_kill() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "500ms", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    let path = directory.path().join("flood.yaml");
    fs::write(
        &path,
        rule("sum(ingress.packets) > 50", "where").to_string(),
    )?;
    let running = Running::start(&path, &nodes)?;
    let traffic = nodes[1].traffic()?;
    wait_for_fine(&nodes[1], true)?;
    let fine = nodes[1].daemon().json("/v1/probes/fine");
    ensure!(fine["labels"]["fleet_rule"] == "flood", "{fine}");
    ensure!(
        fine["interfaces"][0]["interface"] == "mon0" && fine["expires_at"].is_string(),
        "{fine}"
    );
    wait_for("a mark", PATIENCE, || {
        ensure!(!marks(directory.path(), "b")?.is_empty());
        Ok(())
    })?;
    drop(running);

    // The next stream knows from the daemons that the rule has fired, and judges the windows since
    // then.
    let _running = Running::start(&path, &nodes)?;
    let newest = || nodes[1].daemon().json("/v1/probes/p")["windows"]["newest"].as_u64();
    let seen = newest().unwrap_or_default();
    wait_for("acknowledgements", PATIENCE, || {
        let list = nodes[1]
            .daemon()
            .json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
        ensure!(list["after"].as_u64() > Some(seen), "{list}");
        Ok(())
    })?;
    ensure!(
        nodes[1].daemon().json("/v1/probes/fine")["instance"] == fine["instance"],
        "it is the same probe"
    );
    drop(traffic);
    wait_for_fine(&nodes[1], false)?;
    let found = changes(&nodes[1]);
    let kinds: Vec<&str> = found.iter().map(|(kind, _)| kind.as_str()).collect();
    ensure!(kinds == ["created", "removed"], "{found:?}");
    ensure!(
        found
            .iter()
            .all(|(_, why)| why.starts_with("fleet rule flood, ")),
        "{found:?}"
    );
    for (node, name) in [(&nodes[0], "a"), (&nodes[2], "c")] {
        ensure!(
            changes(node).is_empty(),
            "the condition holds at one node only"
        );
        ensure!(
            marks(directory.path(), name)?.is_empty(),
            "the same holds for marks"
        );
    }
    // After the kill, the same mark may come again.
    let mut marks = marks(directory.path(), "b")?;
    marks.dedup();
    ensure!(
        marks.len() == 1 && marks[0] == format!("{}: many", found[0].1),
        "{marks:?}, {found:?}"
    );
    Ok(())
}

/// Receives a notification, and checks its signature.
fn check_notification(receiver: &TcpListener) -> Result<()> {
    let mut stream = BufReader::new(receiver.accept()?.0);
    let mut headers = BTreeMap::new();
    for line in stream.by_ref().lines() {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else {
            if line.is_empty() {
                break;
            }
            continue;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length: usize = headers.get("content-length").context("a length")?.parse()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    stream
        .get_mut()
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    let is_signed = |key| webhook::is_signed(|name| headers.get(name).cloned(), &body, key);
    ensure!(is_signed(KEY)? && !is_signed("another key")?, "{headers:?}");
    let body: Value = serde_json::from_slice(&body)?;
    ensure!(
        body["rule"] == "spread" && body["nodes"].is_array(),
        "{body}"
    );
    Ok(())
}

/// A number below the threshold at each node exceeds it in the sum of all nodes. A probe of another
/// owner stays.
#[test]
fn a_rule_sees_what_no_node_sees_alone() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "1s", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    let other = counter_config("mon0", "XDP_PASS");
    nodes[2].daemon().put("/v1/probes/fine", &other).expect(201);
    let path = directory.path().join("spread.yaml");
    // Each node has about 2,000 packets in a window at most; two nodes together exceed one node's
    // maximum.
    let mut spread = rule("sum(ingress.packets) > 2500", "where");
    let receiver = TcpListener::bind("127.0.0.1:0")?;
    let notify = json!({ "notify": format!("http://{}/hook", receiver.local_addr()?) });
    spread["do"].as_array_mut().context("actions")?.push(notify);
    fs::write(&path, spread.to_string())?;
    let keys = directory.path().join("keys");
    fs::write(&keys, webhook::key_line(KEY))?;
    let of: Vec<&Node> = nodes.iter().collect();
    let more = json!({ "listen": "127.0.0.1:0", "rules": [path], "notificationKeysFile": keys });
    let running = Stream::start(&configuration(directory.path(), &of, &json!([]), &more)?)?;
    let _traffic = [nodes[0].traffic()?, nodes[1].traffic()?];
    wait_for_fine(&nodes[0], true)?;
    wait_for_fine(&nodes[1], true)?;
    ensure!(
        nodes[2].daemon().json("/v1/probes/fine")["labels"]["fleet_rule"].is_null(),
        "it is untouched"
    );
    check_notification(&receiver)?;
    wait_for("the samples of the rule", PATIENCE, || {
        let sample = |name: &str, rule: &str| {
            running.sample(&format!("twinprobe_stream_rule_{name}{{rule=\"{rule}\"}}"))
        };
        ensure!(
            sample("periods_total", "spread")? >= 1.0 && sample("firings_total", "spread")? >= 1.0
        );
        // The node with a probe of another owner refuses.
        ensure!(sample("failures_total", "spread")? >= 1.0, "no failure");
        ensure!(sample("stopped", "spread")? == 0.0 && sample("nodes", "spread")? == 3.0);
        Ok(())
    })
}

/// A change goes to the nodes where the rule's condition holds. It is taken back, also by the next
/// process. An operator's later change stays.
#[test]
fn a_change_goes_where_it_holds_and_is_taken_back() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "500ms", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    for node in &nodes {
        node.daemon()
            .put("/v1/probes/q", &counter_config("mon0", "XDP_PASS"))
            .expect(201);
    }
    let sample =
        |node: &Node| node.daemon().json("/v1/probes/q")["config"]["ingress"]["sample"].as_u64();
    let path = directory.path().join("coarse.yaml");
    let mut coarse = rule("sum(ingress.packets) > 50", "where");
    coarse["do"]
        .as_array_mut()
        .context("actions")?
        .insert(0, json!({ "change": { "name": "q", "sample": 4 } }));
    fs::write(&path, coarse.to_string())?;
    let running = Running::start(&path, &nodes)?;
    let traffic = nodes[1].traffic()?;
    wait_for_fine(&nodes[1], true)?;
    ensure!(nodes.iter().map(sample).eq([None, Some(4), None]));
    drop(running);

    let _running = Running::start(&path, &nodes)?;
    drop(traffic);
    wait_for_fine(&nodes[1], false)?;
    ensure!(
        sample(&nodes[1]).is_none(),
        "the change is taken back before the probe is removed"
    );
    let revisions = nodes[1].daemon().json("/v1/probes/q/revisions");
    let reasons: Vec<&str> = revisions["revisions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["message"].as_str())
        .collect();
    ensure!(
        reasons.len() == 2 && reasons[1].ends_with(", taken back"),
        "{revisions}"
    );
    ensure!(
        reasons
            .iter()
            .all(|why| why.starts_with("fleet rule coarse, ")),
        "{revisions}"
    );

    let traffic = nodes[1].traffic()?;
    wait_for_fine(&nodes[1], true)?;
    ensure!(sample(&nodes[1]) == Some(4));
    let mut other = counter_config("mon0", "XDP_PASS");
    other["ingress"]["sample"] = json!(16);
    nodes[1].daemon().put("/v1/probes/q", &other).expect(200);
    drop(traffic);
    wait_for_fine(&nodes[1], false)?;
    ensure!(
        sample(&nodes[1]) == Some(16),
        "it stays as the operator wants it"
    );
    Ok(())
}

/// Each node deploys a template of its own, with the sum over all nodes in it. The stream is not
/// the author of a template that decides about packets.
#[test]
fn a_template_of_each_node_gets_the_values_of_all_nodes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let window = json!({ "interval": "500ms", "retain": 10_000, "collectors": [COLLECTOR] });
    let nodes = nodes(&window, directory.path())?;
    for (node, name) in nodes.iter().zip(["a", "b", "c"]) {
        let mut template = counter_config("mon0", "XDP_PASS");
        template["labels"] = json!({ "of": name, "sum": "{{sum(ingress.packets)}}" });
        if name == "c" {
            template["ingress"]["verdict"] = json!("enforce");
        }
        node.daemon()
            .put("/v1/templates/counter", &template)
            .expect(201);
    }
    let path = directory.path().join("ready.yaml");
    let mut ready = rule("sum(ingress.packets) > 50", "all");
    ready["do"][0]["apply"] = json!({ "name": "fine", "template": "counter", "expires": "10m" });
    let mut decides = counter_config("mon0", "XDP_PASS");
    decides["ingress"]["verdict"] = json!("enforce");
    nodes[2].daemon().put("/v1/probes/q", &decides).expect(201);
    let coarse = json!({ "change": { "name": "q", "sample": 4 } });
    ready["do"]
        .as_array_mut()
        .context("actions")?
        .insert(1, coarse);
    fs::write(&path, ready.to_string())?;
    let _running = Running::start(&path, &nodes)?;
    wait_for_windows_of_all(&nodes)?;
    let _traffic = nodes[1].traffic()?;
    wait_for("the mark behind the probes", PATIENCE, || {
        ensure!(!marks(directory.path(), "c")?.is_empty());
        Ok(())
    })?;
    let labels = |node: &Node| node.daemon().json("/v1/probes/fine")["labels"].clone();
    let (first, second) = (labels(&nodes[0]), labels(&nodes[1]));
    ensure!(
        first["of"] == "a" && second["of"] == "b" && first["sum"] == second["sum"],
        "{first} {second}"
    );
    ensure!(
        first["sum"].as_str().and_then(|sum| sum.parse().ok()) > Some(50_u64),
        "{first}"
    );
    ensure!(
        changes(&nodes[2]).is_empty(),
        "the template decides about packets"
    );
    let refused = fs::read_to_string(directory.path().join("c"))?;
    for put in ["PUT /v1/probes/fine", "PUT /v1/probes/q"] {
        let mut puts = refused.lines().filter(|line| line.contains(put));
        ensure!(puts.any(|line| line.contains("403")), "{put}: {refused}");
    }
    ensure!(
        nodes[2].daemon().json("/v1/probes/q")["revision"] == 1,
        "a probe that decides stays as it is"
    );
    Ok(())
}

#[test]
fn rules_that_a_stream_can_not_run_are_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("rule.yaml");
    let mut local = rule("sum(ingress.packets) > 50", "where");
    local["scope"] = json!("node");
    local.as_object_mut().expect("an object").remove("on");
    let mut unknown = rule("sum(ingress.packets) > 50", "where");
    unknown["on"] = json!("some");
    for (document, said) in [
        (local, "twinprobe rules apply"),
        (unknown, "on: \"some\" is not a choice of nodes"),
        (rule("sum(ingress.packets >", "where"), "when, column 22: "),
    ] {
        fs::write(&path, document.to_string())?;
        let output = stream(&["--once", "--rules", path.to_str().context("UTF-8")?])?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(2) && told.contains(said),
            "{told}"
        );
    }
    Ok(())
}
