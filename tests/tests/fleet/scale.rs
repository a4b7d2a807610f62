//! The costs of many agents: a change, rest, and a restart of the API server. The figures are
//! printed, and kept in a file beside the API server.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::{scaled, soak};

use crate::agents::Agents;

/// The longest time until a change reaches all nodes. A busy machine has little processor time for
/// each node.
const CONVERGENCE: Duration = Duration::from_mins(40);
/// The time at rest in which requests are counted.
const REST: Duration = Duration::from_secs(20);
const PROBE: &str = "/apis/twinprobe.dev/v1alpha1/monitoringprobes/seen";
const REPORTS: &str = "/apis/twinprobe.dev/v1alpha1/probereports";
const ASSIGNMENT: &str = "/apis/twinprobe.dev/v1alpha1/probeassignments/seen";
/// The kinds that agents ask for.
const KINDS: [&str; 4] = [
    "probeassignments",
    "proberevisions",
    "probereports",
    "nodes",
];

/// The resident memory of a process in KiB.
fn resident(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// The processor time that a process has taken, in seconds.
fn processor(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the process is in brackets and may contain spaces and brackets, so the last
    // bracket ends it.
    let (_, fields) = stat.rsplit_once(") ").context("a name")?;
    let times = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
    Ok(times.sum::<Result<f64, _>>()? / rustix::param::clock_ticks_per_second() as f64)
}

/// The processor time of all that takes part: the API server, etcd, the operator, the daemons, and
/// the agents with this test.
fn processors(agents: &Agents) -> Result<[f64; 5]> {
    let [server, etcd] = agents.fleet.cluster.processes();
    let daemons = agents.daemons().map(processor).sum::<Result<f64>>()?;
    let operator = processor(operator(agents)?)?;
    Ok([
        processor(server)?,
        processor(etcd)?,
        operator,
        daemons,
        processor(std::process::id())?,
    ])
}

fn operator(agents: &Agents) -> Result<u32> {
    Ok(agents
        .fleet
        .operator
        .as_ref()
        .context("an operator")?
        .0
        .id())
}

/// The figures so far, a line each.
#[derive(Default)]
struct ScaleReport {
    text: String,
    /// The number of times that the operator's watch has ended by a restart of the API server.
    ends: usize,
}

impl ScaleReport {
    /// Adds a line to the report, and shows the line.
    fn tell(&mut self, line: &str) {
        println!("{line}");
        // Writing into a string can't fail.
        let _ = writeln!(self.text, "{line}");
    }
}

#[test]
fn a_change_takes_an_agent_one_read_and_one_write() -> Result<()> {
    measure(usize::try_from(scaled(50, 1000))?)
}

#[soak("it takes some gigabytes of memory and many minutes")]
fn a_change_comes_to_ten_thousand_agents() -> Result<()> {
    measure(10_000)
}

fn measure(count: usize) -> Result<()> {
    let mut agents = Agents::new(count)?;
    let mut report = ScaleReport::default();
    start(&agents, &mut report)?;
    for help in ["first", "second"] {
        change(&agents, help, &mut report)?;
    }
    rest(&agents, &mut report)?;
    held(&agents, &mut report)?;
    restart(&mut agents, &mut report)?;
    change(&agents, "third", &mut report)?;
    held(&agents, &mut report)?;
    let file = format!("kubernetes/scale-{count}.txt");
    std::fs::write(
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(file),
        report.text,
    )?;
    Ok(())
}

/// Tells the memory of the operator and of the API server, and how often the operator's watch has
/// ended early.
fn held(agents: &Agents, report: &mut ScaleReport) -> Result<()> {
    let memory = (
        resident(operator(agents)?)?,
        resident(agents.fleet.cluster.processes()[0])?,
    );
    let cut = failed_watches(agents) - report.ends;
    report.tell(&format!(
        "memory of the operator: {} KiB; of the API server: {} KiB; the operator's watch of the reports was cut off {cut} times",
        memory.0, memory.1
    ));
    Ok(())
}

/// Returns how often the operator's watch of the reports has failed so far.
fn failed_watches(agents: &Agents) -> usize {
    agents
        .fleet
        .said("operator")
        .matches("watch of the reports failed")
        .count()
}

/// Starts the agents.
fn start(agents: &Agents, report: &mut ScaleReport) -> Result<()> {
    let (count, own, began) = (agents.count, std::process::id(), Instant::now());
    let (memory, processor) = (resident(own)?, agents.figures()?.processor());
    agents.start()?;
    let seconds = all_watch(agents, began)?;
    let each = (resident(own)? - memory) as f64 / count as f64;
    let milliseconds = (agents.figures()?.processor() - processor) * 1000.0 / count as f64;
    let load = std::fs::read_to_string("/proc/loadavg")?;
    report.tell(&format!("{count} agents, load {}", load.trim()));
    report.tell(&format!(
        "all watch after {seconds:.1} s; for each {milliseconds:.1} ms of the API server, and {each:.0} KiB as a task"
    ));
    Ok(())
}

/// Waits until all agents watch. Returns the seconds since `began`.
fn all_watch(agents: &Agents, began: Instant) -> Result<f64> {
    let count = agents.count as f64;
    let ((), seconds) = agents.until(
        "all agents watch",
        began,
        CONVERGENCE,
        |requests| async move {
            let figures = requests.figures().await?;
            let are_all =
                figures.watches("probeassignments") >= count && figures.watches("nodes") >= count;
            Ok(are_all.then_some(()))
        },
    )?;
    Ok(seconds)
}

/// Applies a revision, and waits until all nodes have reported it.
fn change(agents: &Agents, help: &str, report: &mut ScaleReport) -> Result<()> {
    let n = agents.count as f64;
    let (before, taken, began) = (agents.figures()?, processors(agents)?, Instant::now());
    let rollout = json!({ "canary": null, "steps": ["100%"], "timeout": "1h", "windows": 1 });
    agents.fleet.apply(help, &json!({ "rollout": rollout }))?;
    let enough = (agents.count * 99).div_ceil(100) as u64;
    let has_come = |is_over: fn(&serde_json::Value, u64) -> bool| {
        let (status, seconds) = agents.until(
            "the change comes to the nodes",
            began,
            CONVERGENCE,
            move |requests| async move {
                let object = requests.get(PROBE).await?;
                let status = &object["status"];
                let is_current = status["observedGeneration"] == object["metadata"]["generation"];
                let has_ended = status["step"] == "rolled back" || is_over(status, enough);
                Ok((is_current && has_ended).then(|| status.clone()))
            },
        )?;
        ensure!(status["step"] != "rolled back", "{status:#}");
        Ok(seconds)
    };
    let most = has_come(|status, enough| status["counts"]["running"].as_u64() >= Some(enough))?;
    let all = has_come(|status, _| status["step"] == "complete")?;
    let after = agents.figures()?;
    let requests =
        |verb, resource| (after.requests(verb, resource) - before.requests(verb, resource)) / n;
    let reads = requests("GET", "proberevisions");
    let writes = requests("POST", "probereports") + requests("PATCH", "probereports");
    let bytes = (after.event_bytes() - before.event_bytes()) / n;
    let milliseconds = (after.processor() - before.processor()) * 1000.0 / n;
    let repeated = (after.refused() - before.refused()) / n;
    report.tell(&format!(
        "{help} change: 99 % run it after {most:.1} s, all after {all:.1} s; for each node {bytes:.0} bytes of events, {reads:.2} \
         reads of revisions (those of the operator with them), {writes:.2} reports, {repeated:.2} requests that were repeated, \
         {milliseconds:.1} ms of the API server"
    ));
    let now = processors(agents)?;
    let [server, etcd, operator, daemons, own] = std::array::from_fn(|at| now[at] - taken[at]);
    report.tell(&format!(
        "processor time in these {all:.1} s: API server {server:.1} s, etcd {etcd:.1} s, operator {operator:.1} s, daemons \
         {daemons:.1} s, agents {own:.1} s"
    ));
    ensure!(
        (1.0..1.1).contains(&writes),
        "{writes} reports for each node"
    );
    let reports = agents.get(REPORTS)?;
    let reports = reports["items"].as_array().context("reports")?;
    let longest = reports
        .iter()
        .map(|it| it["spec"].to_string().len())
        .max()
        .unwrap_or_default();
    ensure!(
        reports.len() == agents.count && longest < 1024,
        "{} reports, {longest} bytes",
        reports.len()
    );
    let assignment = agents.get(ASSIGNMENT)?["spec"].to_string().len();
    report.tell(&format!(
        "the longest report has {longest} bytes, the assignment {assignment} bytes"
    ));
    Ok(())
}

/// Counts the requests at rest.
fn rest(agents: &Agents, report: &mut ScaleReport) -> Result<()> {
    let before = agents.figures()?;
    std::thread::sleep(REST);
    let after = agents.figures()?;
    let rest: f64 = KINDS
        .iter()
        .map(|kind| after.all_requests(kind) - before.all_requests(kind))
        .sum();
    report.tell(&format!(
        "at rest: {rest} requests in {} s of all agents and the operator",
        REST.as_secs()
    ));
    Ok(())
}

/// Restarts the API server, and looks at the way in which the agents come back.
fn restart(agents: &mut Agents, report: &mut ScaleReport) -> Result<()> {
    agents.fleet.cluster.restart(|| Ok(()))?;
    let began = Instant::now();
    // The new server counts from 0.
    let (last, most) = (Cell::new((Instant::now(), 0.0)), Cell::new(0.0_f64));
    let n = agents.count as f64;
    let ((), seconds) = agents.until("all agents watch again", began, CONVERGENCE, |requests| {
        let (last, most) = (&last, &most);
        async move {
            let figures = requests.figures().await?;
            let (then, before) = last.get();
            // A watch counts as a request only when it ends.
            let counted = |kind: &str| figures.all_requests(kind) + figures.watches(kind);
            let (now, all) = (Instant::now(), KINDS.iter().map(|kind| counted(kind)).sum());
            most.set(most.get().max((all - before) / (now - then).as_secs_f64()));
            last.set((now, all));
            let are_all = figures.watches("probeassignments") >= n && figures.watches("nodes") >= n;
            Ok(are_all.then_some(()))
        }
    })?;
    report.ends = failed_watches(agents);
    let figures = agents.figures()?;
    let lists: f64 = ["probeassignments", "nodes"]
        .map(|kind| figures.requests("LIST", kind))
        .iter()
        .sum();
    report.tell(&format!(
        "restart of the API server: all watch again {seconds:.1} s after it is ready; for each node {:.2} lists, {:.2} requests that \
         were repeated, {:.1} ms of the API server; at most {:.0} requests a second",
        lists / n,
        figures.refused() / n,
        figures.processor() * 1000.0 / n,
        most.get()
    ));
    Ok(())
}
