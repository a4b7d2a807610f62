//! Many agents as tasks of one process, with the code of the real ones, against the real API server and one daemon. The figures are
//! printed, and kept in a file beside the API server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use twinprobe_operator::{ApiServerOptions, NodeOptions, run_node};
use twinprobe_tests::http::Address;
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::{Daemon, DaemonOptions, Topology, scaled};

use crate::scene::{Fleet, NAMESPACE};

/// The time that a change may take to come to all nodes: a busy machine has little of it for each.
const CONVERGENCE: Duration = Duration::from_mins(20);
/// The time at rest in which requests are counted.
const REST: Duration = Duration::from_secs(20);

/// The agents of many nodes, which share a daemon.
struct Agents {
    fleet: Fleet,
    daemon: Daemon,
    count: usize,
    _topology: Topology,
    runtime: Runtime,
}

impl Agents {
    /// Starts the cluster and its objects, without agents.
    fn new(count: usize) -> Result<Self> {
        let fleet = Fleet::new(0)?;
        let topology = Topology::new()?;
        let connections = (count + 100).to_string();
        let options = DaemonOptions::default().argument("--max-connections").argument(connections);
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let agents = Self { fleet, daemon, count, _topology: topology, runtime };
        let node = |name: String| {
            json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { "role": "edge" } } })
        };
        agents.create(&agents.names().map(node).collect::<Vec<_>>())?;
        let pod = |node: String| {
            json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("agent-{node}"), "namespace": NAMESPACE },
            "spec": { "nodeName": node, "serviceAccountName": "twinprobe", "automountServiceAccountToken": false,
                "containers": [{ "name": "agent", "image": "none" }] } })
        };
        agents.create(&agents.names().map(pod).collect::<Vec<_>>())?;
        agents.write_tokens()?;
        Ok(agents)
    }

    fn names(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.count).map(|at| format!("n{at}"))
    }

    fn create(&self, items: &[Value]) -> Result<()> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        self.fleet.cluster.kubectl(&["create", "-f", "-"], &list.to_string()).map(drop)
    }

    /// Writes the token of each agent's pod into a file.
    fn write_tokens(&self) -> Result<()> {
        let names: Vec<String> = self.names().collect();
        let threads = available_parallelism()?.get() * 2;
        std::thread::scope(|scope| {
            let write = |names: &[String]| -> Result<()> {
                for name in names {
                    let token = self.fleet.bound_token(name)?;
                    std::fs::write(self.file(name, "token"), token)?;
                }
                Ok(())
            };
            let parts = names.chunks(names.len().div_ceil(threads));
            let writers: Vec<_> = parts.map(|part| scope.spawn(move || write(part))).collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
        })
    }

    fn file(&self, node: &str, end: &str) -> PathBuf {
        self.fleet.folder.path().join(format!("{node}.{end}"))
    }

    /// Starts the agent of each node.
    fn start(&self) -> Result<()> {
        let Address::Unix(socket) = self.daemon.address() else { panic!("a daemon with a socket") };
        for name in self.names() {
            let options = NodeOptions {
                server: ApiServerOptions {
                    api_server: self.fleet.cluster.url(),
                    api_ca: self.fleet.cluster.authorities(),
                    api_token: self.file(&name, "token"),
                },
                daemon: format!("unix:{}", socket.display()).parse()?,
                state_dir: self.file(&name, "state"),
                node_name: name,
                pods: false,
                services: false,
                jitter: 1000,
            };
            self.runtime.spawn(run_node(options));
        }
        Ok(())
    }

    fn metrics(&self) -> Result<Figures> {
        Ok(Figures(self.fleet.cluster.kubectl(&["get", "--raw", "/metrics"], "")?))
    }

    /// Applies a revision, and waits until this many nodes run it. Returns the seconds.
    fn change(&self, help: &str) -> Result<f64> {
        let began = Instant::now();
        let rollout = json!({ "canary": null, "steps": ["100%"], "timeout": "1h", "windows": 1 });
        let spec = json!({ "rollout": rollout });
        self.fleet.apply(help, &spec)?;
        let enough = (self.count * 99).div_ceil(100);
        let runs = || {
            let object = self.fleet.object()?;
            let revision = object["status"]["revision"].as_str().unwrap_or_default();
            let is_current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            let running = object["status"]["counts"]["running"].as_u64().unwrap_or_default();
            ensure!(is_current && !revision.is_empty() && running >= enough as u64, "{object:#}");
            Ok(())
        };
        wait_for("99 % of the nodes run it", CONVERGENCE, runs).with_context(|| self.fleet.logs())?;
        let seconds = began.elapsed().as_secs_f64();
        wait_for("every node has reported", CONVERGENCE, || self.fleet.is_at("complete"))
            .with_context(|| self.fleet.logs())?;
        Ok(seconds)
    }
}

/// The API server's own metrics at one moment.
struct Figures(String);

impl Figures {
    /// Adds up the samples of a family whose labels contain all of these.
    fn sum(&self, family: &str, labels: &[&str]) -> f64 {
        let samples = self.0.lines().filter(|line| {
            let name = line.split(['{', ' ']).next();
            name == Some(family) && labels.iter().all(|label| line.contains(label))
        });
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    fn requests(&self, verb: &str, resource: &str) -> f64 {
        let labels = [format!("verb=\"{verb}\""), format!("resource=\"{resource}\"")];
        self.sum("apiserver_request_total", &labels.each_ref().map(String::as_str))
    }

    fn processor(&self) -> f64 {
        self.sum("process_cpu_seconds_total", &[])
    }
}

/// The resident memory of a process in KiB.
fn resident(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Keeps a line of figures, and shows it.
fn tell(report: &mut String, line: &str) {
    println!("{line}");
    // Writing into a string can't fail.
    let _ = writeln!(report, "{line}");
}

#[test]
fn a_change_takes_an_agent_one_read_and_one_write() -> Result<()> {
    let count = usize::try_from(scaled(50, 1000))?;
    let agents = Agents::new(count)?;
    let mut report = String::new();
    let own = std::process::id();
    let before = resident(own)?;
    agents.start()?;
    let watching = || {
        let watches = agents
            .metrics()?
            .sum("apiserver_longrunning_requests", &["verb=\"WATCH\"", "resource=\"probeassignments\""]);
        ensure!(watches >= count as f64, "{watches} watches of {count}");
        Ok(())
    };
    wait_for("all agents watch", CONVERGENCE, watching)?;
    let each = (resident(own)? - before) as f64 / count as f64;
    tell(
        &mut report,
        &format!("{count} agents, load before {}", std::fs::read_to_string("/proc/loadavg")?.trim()),
    );
    tell(&mut report, &format!("memory of an agent, as a task: {each:.0} KiB"));
    let n = count as f64;
    for help in ["first", "second"] {
        let before = agents.metrics()?;
        let seconds = agents.change(help)?;
        let after = agents.metrics()?;
        let requests = |verb, resource| after.requests(verb, resource) - before.requests(verb, resource);
        let reads = requests("GET", "proberevisions") / n;
        let writes = requests("APPLY", "probereports") / n;
        let milliseconds = (after.processor() - before.processor()) * 1000.0 / n;
        tell(
            &mut report,
            &format!(
                "{help} change: 99 % run it after {seconds:.1} s; for each node {reads:.2} reads of revisions (those of the operator with them), {writes:.2} reports, {milliseconds:.1} ms of the API server"
            ),
        );
        // An agent repeats a request that the server refuses because it has no time.
        ensure!((1.0..1.5).contains(&writes), "{writes} reports for each node");
    }
    let reports: Value =
        serde_json::from_str(&agents.fleet.cluster.kubectl(&["get", "pr", "-o", "json"], "")?)?;
    let reports = reports["items"].as_array().context("reports")?;
    let longest = reports.iter().map(|it| it["spec"].to_string().len()).max().unwrap_or_default();
    ensure!(reports.len() == count && longest < 1024, "{} reports, {longest} bytes", reports.len());
    let assignment = agents.fleet.cluster.kubectl(&["get", "probeassignment", "seen", "-o", "json"], "")?;
    let assignment: Value = serde_json::from_str(&assignment)?;
    tell(
        &mut report,
        &format!(
            "the longest report has {longest} bytes, the assignment {} bytes",
            assignment["spec"].to_string().len()
        ),
    );
    let resting = agents.metrics()?;
    std::thread::sleep(REST);
    let later = agents.metrics()?;
    let resources = ["probeassignments", "proberevisions", "probereports", "nodes"];
    let rest: f64 = resources
        .iter()
        .map(|of| {
            later.sum("apiserver_request_total", &[&format!("resource=\"{of}\"")])
                - resting.sum("apiserver_request_total", &[&format!("resource=\"{of}\"")])
        })
        .sum();
    tell(
        &mut report,
        &format!("at rest: {rest} requests in {} s of all agents and the operator", REST.as_secs()),
    );
    let operator = agents.fleet.operator.as_ref().context("an operator")?.0.id();
    tell(
        &mut report,
        &format!(
            "memory of the operator: {} KiB; of the API server: {} KiB",
            resident(operator)?,
            resident(agents.fleet.cluster.processes()[0])?
        ),
    );
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes/scale.txt"), report)?;
    Ok(())
}
