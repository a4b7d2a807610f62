//! `serve --nodes`: the answers of a daemon about other daemons. All daemons are real, and each
//! counts different packets.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, binary};

const SERIES: &str = "/v1/nodes/series?probe=p&metric=packets&from=-1h";

/// A token: the secret, and its line in a file of tokens.
fn token(name: &str, role: &str) -> Result<(String, String)> {
    let made = Command::new(binary()?)
        .args(["token", name, role])
        .output()?;
    let text = String::from_utf8(made.stdout)?;
    let (secret, line) = text.trim_end().split_once('\n').context("two lines")?;
    Ok((secret.to_owned(), line.to_owned()))
}

/// A node whose probe `p` counts packets.
struct Member {
    topology: Topology,
    daemon: Daemon,
}

impl Member {
    fn new(name: &str, tokens: &PathBuf) -> Result<Self> {
        let topology = Topology::new()?;
        let options = DaemonOptions::default()
            .argument("--node-name")
            .argument(name);
        let daemon = Daemon::start_with(
            topology.monitor(),
            &options.argument("--tokens").argument(tokens),
        )?;
        let mut config = counter_config("mon0", "XDP_PASS");
        let metric = json!({ "name": "packets", "map": "packets", "snapshot": true, "init": true });
        config["ingress"]["metrics"] = json!([metric]);
        config["window"] = json!({ "retain": 100 });
        daemon.put("/v1/probes/p", &config).expect(201);
        Ok(Self { topology, daemon })
    }

    fn server(&self) -> String {
        format!("unix:{}", self.daemon.directories().socket().display())
    }

    /// Sends packets, and closes windows until one has the last of them.
    fn send(&self, packets: u64) -> Result<()> {
        Generator::new(
            self.topology.generator(),
            "gen0",
            GeneratorOptions::default(),
        )?
        .send(packets)?;
        let mut counted = 0;
        wait_for("the packets", PATIENCE, || {
            let window = self
                .daemon
                .request("POST", "/v1/probes/p/windows", &[], b"")
                .expect(201)
                .json();
            counted += window["ingress"]["packets"]["entries"][0]["value"]
                .as_u64()
                .context("a count")?;
            ensure!(counted == packets, "{counted} of {packets}");
            Ok(())
        })
    }
}

/// A daemon that asks two real nodes, one that is down, one that never answers, and one whose
/// answer has no end.
struct Scene {
    hub: Daemon,
    members: [Member; 2],
    /// The token that the hub shows to the nodes.
    secret: String,
    viewer: String,
    /// The token of a client of the hub. No node knows this token.
    asker: String,
    path: PathBuf,
    _hanging: TcpListener,
    _directory: TempDir,
    _topology: Topology,
}

impl Scene {
    fn new() -> Result<Self> {
        let (directory, topology) = (tempfile::tempdir()?, Topology::new()?);
        topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
        let file = |name: &str| directory.path().join(name);
        let ((secret, line), (viewer, weak), (asker, own)) = (
            token("hub", "collector")?,
            token("weak", "viewer")?,
            token("desk", "collector")?,
        );
        fs::write(file("tokens"), format!("{line}\n{weak}\n"))?;
        fs::write(file("own"), format!("{own}\n"))?;
        fs::write(file("token"), format!("{secret}\n"))?;
        let members = [
            Member::new("gw-1", &file("tokens"))?,
            Member::new("gw-2", &file("tokens"))?,
        ];
        let listen = || {
            topology
                .monitor()
                .enter(|| TcpListener::bind("127.0.0.1:0"))
        };
        let (hanging, endless) = (listen()??, listen()??);
        let (silent, without_end) = (hanging.local_addr()?, endless.local_addr()?);
        thread::spawn(move || answer_without_end(&endless));
        let lines = [
            "# the nodes".to_owned(),
            format!("gw-1 {} zone=west", members[0].server()),
            format!("down unix:{}", file("none").display()),
            format!("hanging http://{silent}"),
            format!("endless http://{without_end}"),
            format!("gw-2 {} zone=east rack=7", members[1].server()),
        ];
        fs::write(file("nodes"), lines.join("\n"))?;
        let options = DaemonOptions::default()
            .argument("--node-name")
            .argument("hub");
        let options = [
            ("--nodes", "nodes"),
            ("--nodes-token-file", "token"),
            ("--tokens", "own"),
        ]
        .into_iter()
        .fold(options, |options, (option, name)| {
            options.argument(option).argument(file(name))
        });
        let hub = Daemon::start_with(topology.monitor(), &options)?;
        let path = file("token");
        Ok(Self {
            hub,
            members,
            secret,
            viewer,
            asker,
            path,
            _hanging: hanging,
            _directory: directory,
            _topology: topology,
        })
    }

    /// Returns the answer of the hub to a client with the token `asker`.
    fn ask(&self, path: &str) -> Value {
        let authorization = format!("Bearer {}", self.asker);
        self.hub
            .request("GET", path, &[("authorization", &authorization)], b"")
            .expect(200)
            .json()
    }
}

fn answer_without_end(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n");
        while stream.write_all(&[b' '; 4096]).is_ok() {}
    }
}

/// The part of an answer about a node.
fn of<'a>(answer: &'a Value, name: &str) -> Result<&'a Value> {
    let nodes = answer["nodes"].as_array().context("nodes")?;
    nodes
        .iter()
        .find(|node| node["name"] == name)
        .with_context(|| format!("no {name} in {answer}"))
}

fn detail<'a>(answer: &'a Value, name: &str) -> Result<&'a str> {
    let node = of(answer, name)?;
    node["problem"]["detail"]
        .as_str()
        .with_context(|| node.to_string())
}

#[test]
fn nodes_are_asked_side_by_side() -> Result<()> {
    let scene = Scene::new()?;
    let list = scene.ask("/v1/nodes");
    let names: Vec<_> = list["nodes"]
        .as_array()
        .context("nodes")?
        .iter()
        .map(|node| &node["name"])
        .collect();
    assert_eq!(names, ["gw-1", "down", "hanging", "endless", "gw-2"]);
    let node = of(&list, "gw-2")?;
    ensure!(
        node["labels"] == json!({ "rack": "7", "zone": "east" }) && node["node"] == "gw-2",
        "{node}"
    );
    ensure!(
        node["version"] == env!("CARGO_PKG_VERSION") && node.get("problem").is_none(),
        "{node}"
    );
    let probe = &node["probes"][0];
    ensure!(
        probe["name"] == "p" && probe["state"] == "running" && probe["attached"] == 1,
        "{probe}"
    );
    ensure!(
        probe["ns_per_packet"].as_f64() > Some(0.0) && probe["pending"] == 0,
        "{probe}"
    );
    ensure!(
        detail(&list, "down")?.contains("can't be reached: No such file"),
        "{list}"
    );
    ensure!(
        detail(&list, "hanging")? == "it has not answered within 5 s",
        "{list}"
    );
    ensure!(
        detail(&list, "endless")?.contains("has more than 4194304 bytes"),
        "{list}"
    );
    // Before the first window there is neither a chart nor a document.
    let none = scene.ask("/v1/nodes/windows?probe=p&node=gw-1");
    ensure!(
        detail(&none, "gw-1")?.contains("no window yet")
            && none["nodes"][0]["problem"]["status"] == 404
    );
    // Each node and its kernel have counted the node's own packets.
    scene.members[0].send(700)?;
    scene.members[1].send(30)?;
    let later = scene.ask("/v1/nodes");
    for (name, packets) in [("gw-1", 700), ("gw-2", 30)] {
        let passed = |list| Ok::<_, anyhow::Error>(of(list, name)?["traffic"]["packets"].as_u64());
        let (before, after) = (
            passed(&list)?.context("traffic")?,
            passed(&later)?.context("traffic")?,
        );
        ensure!(
            (packets..packets + 30).contains(&(after - before)),
            "{name}: {before} to {after}"
        );
    }
    let charts = scene.ask(SERIES);
    for (name, packets) in [("gw-1", 700), ("gw-2", 30)] {
        let chart = &of(&charts, name)?["chart"];
        ensure!(
            chart["series"][0]["total"] == packets && chart["shows"] == "increase",
            "{chart}"
        );
    }
    ensure!(
        detail(&charts, "hanging")?.contains("within 5 s"),
        "{charts}"
    );
    let some = scene.ask(&format!("{SERIES}&node=gw-2&node=gw-1"));
    ensure!(
        some["nodes"][0]["name"] == "gw-2" && some["nodes"].as_array().map(Vec::len) == Some(2),
        "{some}"
    );
    let documents = scene.ask("/v1/nodes/windows?probe=p&node=gw-1");
    let document = &of(&documents, "gw-1")?["document"];
    ensure!(
        document["node"] == "gw-1" && document["ingress"]["packets"]["entries"].is_array(),
        "{document}"
    );
    // The windows are still there for collectors.
    let newest = &scene.members[0].daemon.json("/v1/probes/p")["windows"]["newest"];
    ensure!(*newest == document["window"]["seq"], "{newest} {document}");
    Ok(())
}

#[test]
fn what_a_node_has_not_is_told_in_its_own_words() -> Result<()> {
    let scene = Scene::new()?;
    scene.members[1].daemon.delete("/v1/probes/p").expect(204);
    let charts = scene.ask(&format!("{SERIES}&node=gw-2"));
    ensure!(charts["nodes"][0]["problem"]["status"] == 404, "{charts}");
    ensure!(
        detail(&charts, "gw-2")?.contains("there is no probe named p"),
        "{charts}"
    );
    let charts = scene.ask(&format!("{SERIES}&node=gw-1"));
    ensure!(
        detail(&charts, "gw-1")?.contains("no retained windows"),
        "{charts}"
    );
    scene.members[0].send(1)?;
    let charts = scene.ask("/v1/nodes/series?probe=p&metric=none&node=gw-1");
    ensure!(
        detail(&charts, "gw-1")?.contains("none") && charts["nodes"][0]["problem"]["status"] == 400
    );
    for (path, words) in [
        ("series?metric=packets", "probe is missing"),
        ("series?probe=p", "metric is missing"),
        (
            "series?probe=p&metric=packets&node=gw-9",
            "node=gw-9: the file of --nodes",
        ),
        ("windows?probe=p&top=0", "top=0 is not a number of keys"),
        (
            "windows?probe=p&path=/v1/rules",
            "there is no parameter path",
        ),
    ] {
        let refused = scene
            .hub
            .get(&format!("/v1/nodes/{path}"))
            .expect(400)
            .json();
        ensure!(
            refused["detail"]
                .as_str()
                .is_some_and(|why| why.contains(words)),
            "{refused}"
        );
    }
    // A name with `..` does not make the request leave the path of the probes.
    let astray = scene.ask("/v1/nodes/windows?probe=..%2Frules&node=gw-1");
    ensure!(astray["nodes"][0]["problem"]["status"] == 404, "{astray}");
    Ok(())
}

/// The daemon shows its own credential, never its client's. A change of the file needs no restart.
#[test]
fn nodes_see_the_credential_of_the_daemon_alone() -> Result<()> {
    let scene = Scene::new()?;
    let asked = || scene.ask("/v1/nodes/windows?probe=p&node=gw-1&node=gw-2");
    let words = |answer: &Value| Ok::<_, anyhow::Error>(detail(answer, "gw-1")?.to_owned());
    ensure!(
        words(&asked())?.contains("no window yet"),
        "the token of the daemon is known there"
    );
    // The nodes refuse the client's token like any other wrong one.
    fs::write(&scene.path, &scene.asker)?;
    let refused = asked();
    ensure!(
        words(&refused)?.contains("; see --nodes-token-file"),
        "{refused}"
    );
    ensure!(refused["nodes"][1]["problem"]["status"] == 401, "{refused}");
    fs::write(&scene.path, &scene.viewer)?;
    let refused = scene.ask(&format!("{SERIES}&node=gw-1"));
    ensure!(
        words(&refused)?.contains("role collector is needed"),
        "{refused}"
    );
    fs::remove_file(&scene.path)?;
    let lost = asked();
    ensure!(words(&lost)?.contains("of --nodes-token-file"), "{lost}");
    fs::write(&scene.path, &scene.secret)?;
    ensure!(words(&asked())?.contains("no window yet"));
    let shown = [
        scene.hub.log(),
        scene.hub.get("/metrics").expect(200).text().to_owned(),
        scene.ask("/v1/nodes?").to_string(),
        fs::read_to_string(format!("/proc/{}/cmdline", scene.hub.pid()))?,
    ];
    for text in shown {
        ensure!(!text.contains(&scene.secret), "{text}");
    }
    Ok(())
}

#[test]
fn a_daemon_without_nodes_names_the_option_and_a_bad_file_its_line() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for path in ["/v1/nodes", SERIES, "/v1/nodes/windows?probe=p"] {
        let refused = daemon.get(path).expect(404).json();
        ensure!(
            refused["detail"]
                .as_str()
                .is_some_and(|why| why.contains("serve --nodes FILE")),
            "{refused}"
        );
    }
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("nodes");
    let refused = |text: &str, more: &[&str]| -> Result<String> {
        fs::write(&path, text)?;
        let told = Command::new(binary()?)
            .args(["serve", "--nodes"])
            .arg(&path)
            .args(more)
            .output()?;
        ensure!(!told.status.success(), "{text}");
        Ok(String::from_utf8(told.stderr)?)
    };
    for (text, words) in [
        ("gw-1 unix:/a\n\ngw-2\n", "nodes:3: gw-2: no server address"),
        ("gw-1 unix:/a west\n", "nodes:1: \"west\" can't be a label"),
        (
            "gw-1 unix:/a\ngw-1 unix:/b\n",
            "nodes:2: there are two servers \"gw-1\"",
        ),
        ("# none\n", "names no server"),
    ] {
        let told = refused(text, &[])?;
        ensure!(told.contains(words), "{told}");
    }
    let told = refused(
        "gw-1 unix:/a\ngw-2 http://192.0.2.1:9470\n",
        &["--nodes-token-file", "/none"],
    )?;
    ensure!(
        told.contains("nodes:2: http://192.0.2.1:9470: --nodes-token-file needs https"),
        "{told}"
    );
    let told = refused("gw-1 unix:/a\n", &["--nodes-token-file", "/none"])?;
    ensure!(told.contains("/none of --nodes-token-file"), "{told}");
    Ok(())
}

/// A change of the file needs no restart, and a mistake changes nothing.
#[test]
fn nodes_come_and_go_with_their_file() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name);
    let (secret, line) = token("hub", "collector")?;
    fs::write(file("tokens"), format!("{line}\n"))?;
    fs::write(file("token"), format!("{secret}\n"))?;
    let members = [
        Member::new("gw-1", &file("tokens"))?,
        Member::new("gw-2", &file("tokens"))?,
    ];
    let line = |place: usize| format!("gw-{} {} zone=west\n", place + 1, members[place].server());
    fs::write(file("nodes"), line(0))?;
    let topology = Topology::new()?;
    let options = [("--nodes", "nodes"), ("--nodes-token-file", "token")]
        .into_iter()
        .fold(DaemonOptions::default(), |options, (option, name)| {
            options.argument(option).argument(file(name))
        });
    let hub = Daemon::start_with(topology.monitor(), &options)?;
    let reread = |text: &str, words: &str| -> Result<()> {
        fs::write(file("nodes"), text)?;
        let said = || hub.log().matches(words).count();
        let before = said();
        hub.signal(libc::SIGHUP);
        wait_for(words, PATIENCE, || {
            ensure!(said() > before, "{before} times");
            Ok(())
        })
    };
    let names = || -> Vec<Value> {
        let list = hub.json("/v1/nodes");
        list["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|node| node["node"].clone())
            .collect()
    };
    assert_eq!(names(), ["gw-1"]);
    reread(&(line(1) + &line(0)), "the nodes were read again")?;
    assert_eq!(names(), ["gw-2", "gw-1"], "in the order of the file");
    for (text, words) in [
        (line(0) + "gw-9\n", "nodes:2: gw-9: no server address"),
        (
            line(0) + "gw-9 http://192.0.2.1:9470\n",
            "nodes:2: http://192.0.2.1:9470: --nodes-token-file needs https",
        ),
        (String::new(), "names no server"),
    ] {
        reread(&text, words)?;
        ensure!(
            hub.log().contains("the nodes stay as they are"),
            "{}",
            hub.log()
        );
        assert_eq!(names(), ["gw-2", "gw-1"], "{words}");
    }
    reread(&line(1), "the nodes were read again")?;
    assert_eq!(names(), ["gw-2"]);
    Ok(())
}
