//! The cost of each further interface, probe, window, collector and sending CPU, as the slope of a
//! line.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::measure::{Resident, Sample};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::{Daemon, DaemonOptions, Topology, attachments, http};

use crate::experiments::cpus;
use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate};
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::pairs::pairs;

const INTERFACES: [usize; 5] = [1, 4, 16, 64, 256];
const PROBES: [usize; 5] = [1, 10, 100, 500, 1000];
/// The number of interfaces in the table about probes at the same interfaces.
const BESIDE: usize = 40;
const WINDOWS: [usize; 3] = [1, 100, 1000];
const COLLECTORS: [usize; 4] = [1, 16, 64, 256];
const HOOKS: [&str; 2] = ["xdp", "tc"];
/// The most probes of a hook.
const PER_HOOK: usize = 16;
/// The goal for 256 interfaces, in milliseconds.
const GOAL: f64 = 1000.0;
const PATIENCE: Duration = Duration::from_secs(60);
const PROBE: &str = "/v1/probes/probe";

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Scale",
        "What does each further interface, probe, window, collector and sending CPU cost, and what breaks first?",
        "Each table has more of one thing from row to row: interfaces of one probe, probes at 40 interfaces, probes \
         of one daemon, retained windows of one probe, collectors that wait, sending CPUs. `null` compares a case \
         with itself, measured in turns. Slopes are least squares, intervals are of 95 % (bootstrap).",
    );
    section.details =
        "Interfaces: PUT and DELETE of one probe at so many interfaces, and of the last of so many probes at 40 \
         interfaces. Probes: so many counters, 16 at each of as many interfaces as needed; the time and resident \
         memory of the daemon for each further one, and the time of a restart until `/readyz` is 200. Collectors: \
         long polls that wait, and the time until all have the answer after a window was closed. CPUs: a flow table \
         that drops, fed by one generator, and by two on two CPUs through two interfaces; packets are counted \
         exactly."
        .to_owned();
    section.generator = Some(
        "the generator of the tests (`traffic`), on CPU 0 and on CPU 1; only for the last table"
            .into(),
    );
    let hooks: Vec<_> = HOOKS
        .into_iter()
        .map(|hook| interfaces(bench, hook))
        .collect::<Result<_>>()?;
    let beside = beside(bench)?;
    let (probes, probe_text) = probes(bench)?;
    let windows = windows(bench)?;
    let (collectors, collector_text) = collectors(bench)?;
    let (cpus, cpu_text) = cpus::table(bench)?;
    section.figures.push(Figure {
        name: "scale",
        title: "Time of a PUT and of a DELETE by the number of interfaces",
        x: Axis {
            label: "interfaces",
            logarithmic: true,
        },
        y: Axis {
            label: "ms",
            logarithmic: true,
        },
        panels: vec![Panel {
            title: "one probe at many interfaces".into(),
            curves: hooks
                .iter()
                .flat_map(|at| [(at.hook, "PUT", &at.put), (at.hook, "DELETE", &at.delete)])
                .map(|(hook, what, points)| Curve {
                    name: format!("{hook}, {what}"),
                    points: points.clone(),
                })
                .collect(),
        }],
    });
    let mut by_interfaces = Table::new(&[
        "hook",
        "interfaces",
        "rounds",
        "PUT, ms",
        "DELETE, ms",
        "null (PUT)",
    ]);
    for row in hooks.iter().flat_map(|at| &at.rows) {
        by_interfaces.row(row.clone());
    }
    let slope: Vec<String> = hooks.iter().map(Interfaces::slope).collect();
    section.tables = vec![by_interfaces, beside, probes, windows, collectors, cpus];
    section.meaning = format!(
        "{} At TC (TCX) the kernel waits for a grace period for each link that it makes or removes. Meanwhile it \
         holds the lock of all interfaces (rtnl), so no two of these waits can overlap: 256 of them take 3 s with \
         `serve --expedite never`. The daemon expedites them. At XDP the kernel waits for each new program, and all \
         interfaces share one program. {probe_text} {collector_text} {cpu_text}",
        slope.join(" ")
    );
    let mut most = Vec::new();
    for at in &hooks {
        let ((count, put), (_, delete)) = (
            at.put.last().context("a case")?,
            at.delete.last().context("a case")?,
        );
        let missed = if put.value.max(delete.value) <= GOAL {
            ""
        } else {
            " (missed)"
        };
        most.push(format!(
            "{}, {count}: PUT {:.0}, DELETE {:.0} ms{missed}",
            at.hook, put.value, delete.value
        ));
    }
    section.claims.push(Claim {
        claim: "a PUT, and a DELETE, at 256 interfaces",
        paper: "goal <= 1 s",
        ours: most.join("; "),
        peers: String::new(),
    });
    Ok(section)
}

/// The times by the number of interfaces.
struct Interfaces {
    hook: &'static str,
    rows: Vec<Vec<String>>,
    put: Vec<(f64, Estimate)>,
    delete: Vec<(f64, Estimate)>,
}

impl Interfaces {
    /// Describes the cost of each further interface.
    fn slope(&self) -> String {
        let of = |points: &[(f64, Estimate)]| {
            slope(
                &points
                    .iter()
                    .map(|(x, y)| (*x, y.value))
                    .collect::<Vec<_>>(),
            )
        };
        let (put, delete) = (of(&self.put), of(&self.delete));
        format!(
            "At {} each further interface adds {put:.2} ms to a PUT and {delete:.2} ms to a DELETE.",
            self.hook
        )
    }
}

fn milliseconds(since: Instant) -> f64 {
    1e3 * since.elapsed().as_secs_f64()
}

/// Returns the slope of the line through the points: the increase of the second number for each
/// unit of the first.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let both: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    let squares: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if squares > 0.0 {
        both / squares
    } else {
        f64::NAN
    }
}

/// Returns a counter at XDP or TC.
fn counter(hook: &str, interfaces: &[String]) -> Value {
    if hook == "xdp" {
        let mut config = counter_config("", "XDP_PASS");
        if let Some(config) = config.as_object_mut() {
            config.remove("interface");
            config.insert("interfaces".into(), json!(interfaces));
        }
        return config;
    }
    let metrics = json!([{ "name": "packets", "map": "packets", "snapshot": true, "init": true }]);
    let source = attachments::tc_counter("-1");
    json!({ "interfaces": interfaces, "ingress": { "hook": "tc", "source": source, "metrics": metrics } })
}

fn daemon(topology: &Topology) -> Result<Daemon> {
    Daemon::start_with(topology.monitor(), &options())
}

/// Returns limits that are not reached.
fn options() -> DaemonOptions {
    [
        "--max-probes",
        "4096",
        "--max-maps",
        "65536",
        "--max-programs",
        "65536",
    ]
    .into_iter()
    .fold(DaemonOptions::default(), DaemonOptions::argument)
}

fn interfaces(bench: &Bench, hook: &'static str) -> Result<Interfaces> {
    let counts = bench.cases(&INTERFACES, &[1, 8]);
    let topology = Topology::new()?;
    let names = pairs(&topology, *counts.last().context("a case")?)?;
    let daemon = daemon(&topology)?;
    let mut found = Interfaces {
        hook,
        rows: Vec::new(),
        put: Vec::new(),
        delete: Vec::new(),
    };
    for count in counts {
        let config = counter(hook, &names[..count]);
        let rounds = bench.rounds(5, 1);
        let mut deletes = Sample::default();
        let puts = Comparison::measure(rounds, |_| {
            come_and_go(&daemon, &config, count, &mut deletes)
        })?;
        let (put, delete) = (Estimate::of(&puts.base), Estimate::of(&deletes));
        found.put.push((count as f64, put));
        found.delete.push((count as f64, delete));
        found.rows.push(vec![
            hook.to_owned(),
            count.to_string(),
            rounds.to_string(),
            put.show(0),
            delete.show(0),
            puts.null_ratio().show(2),
        ]);
    }
    Ok(found)
}

/// Puts a probe, whose source the daemon knows, at this many interfaces and deletes it. Returns the
/// time of the PUT.
fn come_and_go(daemon: &Daemon, config: &Value, count: usize, deletes: &mut Sample) -> Result<f64> {
    let started = Instant::now();
    let answer = daemon.put(PROBE, config);
    let time = milliseconds(started);
    let status = answer.expect(201).json();
    let attached = status["interfaces"].as_array().context("interfaces")?;
    let all = attached
        .iter()
        .filter(|attachment| attachment["state"] == "attached")
        .count();
    ensure!(all == count, "{all} of {count} interfaces are attached");
    let started = Instant::now();
    daemon.delete(PROBE).expect(204);
    deletes.add(milliseconds(started));
    Ok(time)
}

/// Measures the last of several probes at the same interfaces.
fn beside(bench: &Bench) -> Result<Table> {
    let mut table = Table::new(&[
        "hook",
        "interfaces",
        "probes at each",
        "PUT, ms",
        "DELETE, ms",
        "null (PUT)",
    ]);
    let count = bench.times(BESIDE as u64, 4) as usize;
    for hook in HOOKS {
        let topology = Topology::new()?;
        let names = pairs(&topology, count)?;
        let daemon = daemon(&topology)?;
        let config = counter(hook, &names);
        let mut deployed = 0;
        for probes in bench.cases(&[1, 2, 4, 8, PER_HOOK], &[1, 3]) {
            while deployed + 1 < probes {
                deployed += 1;
                daemon
                    .put(&format!("/v1/probes/other{deployed}"), &config)
                    .expect(201);
            }
            let mut deletes = Sample::default();
            let rounds = bench.rounds(5, 1);
            let puts = Comparison::measure(rounds, |_| {
                come_and_go(&daemon, &config, count, &mut deletes)
            })?;
            table.row([
                hook.to_owned(),
                count.to_string(),
                probes.to_string(),
                Estimate::of(&puts.base).show(0),
                Estimate::of(&deletes).show(0),
                puts.null_ratio().show(2),
            ]);
        }
    }
    Ok(table)
}

fn probes(bench: &Bench) -> Result<(Table, String)> {
    let mut table = Table::new(&[
        "probes",
        "ms per PUT",
        "VmRSS, MiB",
        "KiB per further probe",
        "restart, ms",
    ]);
    let counts = bench.cases(&PROBES, &[1, 20]);
    let most = *counts.last().context("a case")?;
    let topology = Topology::new()?;
    let names = pairs(&topology, most.div_ceil(PER_HOOK))?;
    let mut daemon = daemon(&topology)?;
    let mut last = Resident::of(daemon.pid())?.total_kib;
    let (mut deployed, mut broken) = (0, String::new());
    for count in counts {
        let (before, started) = (deployed, Instant::now());
        while deployed < count {
            let config = counter("tc", &names[deployed / PER_HOOK..=deployed / PER_HOOK]);
            let answer = daemon.put(&format!("/v1/probes/probe{deployed}"), &config);
            if answer.status != 201 {
                broken = format!(
                    "Probe {} was refused: {}.",
                    deployed + 1,
                    answer.json()["detail"]
                );
                break;
            }
            deployed += 1;
        }
        if deployed == before {
            break;
        }
        let each = milliseconds(started) / (deployed - before) as f64;
        let resident = Resident::of(daemon.pid())?.total_kib;
        let started = Instant::now();
        daemon = daemon.restart(libc::SIGTERM, &options())?;
        wait_for("all probes", PATIENCE, || {
            let ready = daemon.get("/readyz");
            ensure!(ready.status == 200, "{}", ready.text());
            Ok(())
        })?;
        let restart = milliseconds(started);
        let listed = daemon.json("/v1/probes");
        let found = listed["probes"]
            .as_array()
            .or(listed.as_array())
            .map_or(0, Vec::len);
        ensure!(
            found == deployed,
            "{found} of {deployed} probes after a restart"
        );
        table.row([
            deployed.to_string(),
            format!("{each:.1}"),
            format!("{:.1}", resident as f64 / 1024.0),
            // A few more probes are too few for a measurement of the cost of each probe.
            if broken.is_empty() {
                format!(
                    "{:.1}",
                    resident.saturating_sub(last) as f64 / (deployed - before) as f64
                )
            } else {
                String::new()
            },
            format!("{restart:.0}"),
        ]);
        // The restarted daemon uses less memory.
        last = Resident::of(daemon.pid())?.total_kib;
    }
    Ok((
        table,
        if broken.is_empty() {
            format!("{deployed} probes did not break anything.")
        } else {
            broken
        },
    ))
}

fn windows(bench: &Bench) -> Result<Table> {
    let mut table = Table::new(&["retained windows", "VmRSS, MiB", "KiB per further window"]);
    let topology = Topology::new()?;
    let daemon = daemon(&topology)?;
    let mut config = counter_config("mon0", "XDP_PASS");
    config["window"] = json!({ "retain": 100_000 });
    daemon.put(PROBE, &config).expect(201);
    let (mut last, mut closed) = (Resident::of(daemon.pid())?.total_kib, 0);
    for count in bench.cases(&WINDOWS, &[1, 20]) {
        let before = closed;
        while closed < count {
            daemon
                .request("POST", &format!("{PROBE}/windows"), &[], b"")
                .expect(201);
            closed += 1;
        }
        let listed = daemon.json(&format!("{PROBE}/windows"));
        let retained = listed["windows"].as_array().context("windows")?.len();
        ensure!(
            retained == closed,
            "{retained} of {closed} windows are retained"
        );
        let resident = Resident::of(daemon.pid())?.total_kib;
        table.row([
            closed.to_string(),
            format!("{:.1}", resident as f64 / 1024.0),
            format!(
                "{:.2}",
                resident.saturating_sub(last) as f64 / (closed - before) as f64
            ),
        ]);
        last = resident;
    }
    Ok(table)
}

fn collectors(bench: &Bench) -> Result<(Table, String)> {
    let mut table = Table::new(&[
        "collectors",
        "rounds",
        "all have the window after, ms",
        "null",
        "VmRSS, MiB",
    ]);
    let topology = Topology::new()?;
    let daemon = daemon(&topology)?;
    daemon
        .put(PROBE, &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let (mut points, mut memory) = (Vec::new(), Vec::new());
    for count in bench.cases(&COLLECTORS, &[1, 16]) {
        let rounds = bench.rounds(7, 1);
        let mut resident = 0;
        let times = Comparison::measure(rounds, |_| {
            let closed = daemon
                .request("POST", &format!("{PROBE}/windows"), &[], b"")
                .expect(201)
                .json();
            let seq = closed["window"]["seq"].as_u64().context("a number")?;
            let (address, path) = (
                daemon.address(),
                format!("{PROBE}/windows?after={seq}&wait=60"),
            );
            thread::scope(|scope| {
                let waiting: Vec<_> = (0..count)
                    .map(|_| scope.spawn(|| http::request(&address, "GET", &path, &[], b"")))
                    .collect();
                wait_for("all collectors", PATIENCE, || {
                    let connected = daemon.connections();
                    ensure!(
                        connected == count,
                        "{connected} of {count} collectors are connected"
                    );
                    Ok(())
                })?;
                resident = Resident::of(daemon.pid())?.total_kib;
                let started = Instant::now();
                daemon
                    .request("POST", &format!("{PROBE}/windows"), &[], b"")
                    .expect(201);
                for collector in waiting {
                    let answer = collector
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                    let windows = answer.expect(200).json()["windows"]
                        .as_array()
                        .map_or(0, Vec::len);
                    ensure!(windows == 1, "{windows} windows");
                }
                Ok(milliseconds(started))
            })
        })?;
        let time = Estimate::of(&times.base);
        points.push((count as f64, time.value));
        table.row([
            count.to_string(),
            rounds.to_string(),
            time.show(1),
            times.null_ratio().show(2),
            format!("{:.1}", resident as f64 / 1024.0),
        ]);
        memory.push((count as f64, resident as f64));
    }
    let text = format!(
        "Each further collector that waits has its answer {:.3} ms later and takes {:.1} KiB.",
        slope(&points),
        slope(&memory)
    );
    Ok((table, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_that_of_the_line() {
        assert!((slope(&[(1.0, 3.0), (2.0, 5.0), (3.0, 7.0)]) - 2.0).abs() < 1e-9);
        assert!(slope(&[(1.0, 3.0)]).is_nan());
    }
}
