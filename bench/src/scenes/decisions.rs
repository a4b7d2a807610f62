//! Scenarios at the nodes of a fleet, and the decisions of a rule: at each node, or over all nodes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::{Timestamp, Unit};
use serde_json::{Value, json};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::wait::wait_for;

use super::fleet::{COLLECTOR, Fleet, FleetNode, FleetStream, NODES};
use super::probes::nameless;

/// Windows of the coarse probe, which end at the same time at all nodes.
const INTERVAL: Duration = Duration::from_millis(500);
const INTERVAL_TEXT: &str = "500ms";
/// The name of the rules.
const RULE: &str = "decisions";
/// SYNs per second without an attack.
pub const QUIET: u64 = 300;
/// The longest time until an attack is found. It is also the time for which a network is cut.
pub const LIMIT: Duration = Duration::from_secs(4);
/// The longest time until a cut network finds the attack afterwards.
const AFTER: Duration = Duration::from_secs(12);
/// The length of a harmless burst.
pub const BURST: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two looks at the daemons. It does not affect the figures, which are times from
/// the daemons.
const LOOK: Duration = Duration::from_millis(50);

/// A rule, by its threshold in SYNs per second.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Node(u64),
    Fleet(u64),
}

/// Traffic at the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub rates: [u64; NODES],
    pub is_attack: bool,
    /// True if the first node's network is cut for [`LIMIT`].
    pub is_cut: bool,
}

/// The results of one rule in one scenario.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub rounds: usize,
    pub fired: usize,
    /// The milliseconds until the fine probe of the last attacked node gets packets: from the end
    /// of the window, and from the beginning of the attack.
    pub reaction: Sample,
    pub found: Sample,
    /// The milliseconds from the end of the cut until the last attacked node has the fine probe.
    pub after: Sample,
    /// Bytes per second between a node and the centre.
    pub bytes: Sample,
}

/// The nodes, and the probe that rules deploy.
pub struct DecisionScene {
    fleet: Fleet,
    fine: Value,
}

/// The fine probe, without interfaces: it runs where the coarse one runs.
fn fine() -> Result<Value> {
    let mut config = nameless("flow-features", "mon0")?;
    config
        .as_object_mut()
        .context("a configuration")?
        .remove("interface");
    config["window"] = json!({ "interval": "100ms" });
    Ok(config)
}

fn coarse() -> Result<Value> {
    let mut config = nameless("tcp-flags", "mon0")?;
    config
        .as_object_mut()
        .context("a configuration")?
        .remove("egress");
    // Each window begins at zero, so that a sum over nodes needs no earlier window.
    let metrics = config["ingress"]["metrics"]
        .as_array_mut()
        .context("metrics")?;
    metrics.truncate(1);
    metrics[0]["init"] = true.into();
    config["window"] = json!({ "interval": INTERVAL_TEXT, "align": true, "retain": 1000, "collectors": [COLLECTOR] });
    Ok(config)
}

impl DecisionScene {
    pub fn new() -> Result<Self> {
        let scene = Self {
            fleet: Fleet::new()?,
            fine: fine()?,
        };
        scene.prepare()?;
        Ok(scene)
    }

    /// Lets each daemon compile and try the fine probe, as for an earlier probe.
    fn prepare(&self) -> Result<()> {
        let mut config = self.fine.clone();
        config["interface"] = "mon0".into();
        for node in &self.fleet.nodes {
            node.daemon.put("/v1/probes/fine", &config).expect(201);
            node.daemon.delete("/v1/probes/fine").expect(204);
        }
        Ok(())
    }

    /// Begins with new windows, and with the rule.
    pub fn begin(&self, way: Way) -> Result<Option<FleetStream>> {
        self.fleet.syns.set([QUIET; NODES]);
        let coarse = coarse()?;
        for node in &self.fleet.nodes {
            node.daemon.put("/v1/probes/coarse", &coarse).expect(201);
            if let Way::Node(limit) = way {
                node.daemon
                    .put(&format!("/v1/rules/{RULE}"), &self.rule(limit))
                    .expect(201);
            }
        }
        let Way::Fleet(limit) = way else {
            return Ok(None);
        };
        let mut rule = self.rule(limit);
        rule["scope"] = "fleet".into();
        self.fleet.stream(RULE, &rule).map(Some)
    }

    pub fn end(&self, way: Way, running: Option<FleetStream>) {
        drop(running);
        for node in &self.fleet.nodes {
            if let Way::Node(_) = way {
                node.daemon.delete(&format!("/v1/rules/{RULE}")).expect(204);
            }
            // The next stream must not find windows of this stream.
            node.daemon.delete("/v1/probes/coarse").expect(204);
        }
    }

    fn rule(&self, limit: u64) -> Value {
        json!({
            "watch": "coarse",
            "when": format!("sum(ingress.tcp_flags, 'SYN') > {limit} * window.seconds"),
            "do": [{ "apply": { "name": "fine", "config": self.fine, "expires": "5m" } }],
            "cooldown": "0s",
            "max_actions_per_hour": 1000,
        })
    }

    /// Lets the traffic of a scenario come once.
    pub fn round(&self, way: Way, scenario: &Scenario, outcome: &mut Outcome) -> Result<()> {
        let (fleet, began, clock) = (&self.fleet, Timestamp::now(), Instant::now());
        let bytes = fleet.bytes()?;
        if scenario.is_cut {
            fleet.cut(0, true)?;
        }
        fleet.syns.set(scenario.rates);
        let starts = if scenario.is_attack {
            self.starts(scenario, LIMIT)?
        } else {
            thread::sleep(BURST);
            fleet.syns.set([QUIET; NODES]);
            thread::sleep(LIMIT - BURST);
            None
        };
        outcome.rounds += 1;
        outcome
            .bytes
            .add((fleet.bytes()? - bytes) as f64 / clock.elapsed().as_secs_f64() / NODES as f64);
        let is_found = starts.is_some();
        match starts {
            Some(starts) => {
                outcome.fired += 1;
                outcome.found.add(latest(&starts, began)?);
                outcome.reaction.add(self.reaction(way, &starts)?);
            }
            None if !scenario.is_attack => outcome.fired += usize::from(self.has_fired(began)?),
            None => {}
        }
        if scenario.is_cut {
            let healed = Timestamp::now();
            fleet.cut(0, false)?;
            // The attack goes on.
            if !is_found && let Some(starts) = self.starts(scenario, AFTER)? {
                outcome.after.add(latest(&starts, healed)?);
            }
        }
        fleet.syns.set([QUIET; NODES]);
        self.rest()
    }

    /// Waits until each attacked node has the fine probe. Returns the beginnings of the fine
    /// probes, by node; `None` at the limit.
    fn starts(
        &self,
        scenario: &Scenario,
        limit: Duration,
    ) -> Result<Option<Vec<(usize, Timestamp)>>> {
        let begun = Instant::now();
        let attacked = || (0..NODES).filter(|node| scenario.rates[*node] > QUIET);
        while begun.elapsed() < limit {
            let starts = attacked().map(|node| {
                Ok(Some((
                    node,
                    match start(&self.fleet.nodes[node])? {
                        Some(start) => start,
                        None => return Ok(None),
                    },
                )))
            });
            if let Some(starts) = starts.collect::<Result<Option<Vec<_>>>>()? {
                return Ok(Some(starts));
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// The longest time from the end of a window at which the rule fired until the fine probe
    /// began.
    fn reaction(&self, way: Way, starts: &[(usize, Timestamp)]) -> Result<f64> {
        let mut longest = 0.0_f64;
        for (node, start) in starts {
            let daemon = &self.fleet.nodes[*node].daemon;
            let time = match way {
                Way::Node(_) => {
                    let rule = daemon.json(&format!("/v1/rules/{RULE}"));
                    let last = rule["firings"]
                        .as_array()
                        .and_then(|firings| firings.last())
                        .context("a firing")?;
                    last["time"].as_str().context("a time")?.to_owned()
                }
                Way::Fleet(_) => {
                    let history = creations(&self.fleet.nodes[*node]);
                    let why = history
                        .last()
                        .and_then(|entry| entry["message"].as_str())
                        .context("a reason")?;
                    why.rsplit_once(", ").context("a time")?.1.to_owned()
                }
            };
            longest = longest.max(milliseconds(time.parse()?, *start)?);
        }
        Ok(longest)
    }

    /// Tells whether a rule has deployed the fine probe anywhere since a moment.
    fn has_fired(&self, since: Timestamp) -> Result<bool> {
        for node in &self.fleet.nodes {
            for entry in creations(node) {
                let at: Timestamp = entry["time"].as_str().context("a time")?.parse()?;
                if at >= since {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Waits until no node has the fine probe, and all windows show ordinary traffic.
    fn rest(&self) -> Result<()> {
        wait_for("the end of the actions", PATIENCE, || {
            let is_gone = |node: &FleetNode| node.daemon.get("/v1/probes/fine").status == 404;
            ensure!(
                self.fleet.nodes.iter().all(is_gone),
                "the fine probe is there"
            );
            Ok(())
        })?;
        thread::sleep(4 * INTERVAL);
        let is_gone = |node: &FleetNode| node.daemon.get("/v1/probes/fine").status == 404;
        ensure!(
            self.fleet.nodes.iter().all(is_gone),
            "the rule has fired in ordinary traffic"
        );
        Ok(())
    }
}

/// The beginning of the first window of the fine probe; `None` while it has no window.
fn start(node: &FleetNode) -> Result<Option<Timestamp>> {
    let list = node.daemon.get("/v1/probes/fine/windows");
    if list.status != 200 {
        return Ok(None);
    }
    let list = list.json();
    let first = list["windows"]
        .as_array()
        .and_then(|windows| windows.first());
    let start = first.and_then(|window| window["start"].as_str());
    start
        .map(|start| start.parse().context("a time"))
        .transpose()
}

/// The creations of the fine probe at a node, oldest first.
fn creations(node: &FleetNode) -> Vec<Value> {
    let history = node.daemon.json("/v1/probes/fine/history");
    let entries = history["history"].as_array().cloned().unwrap_or_default();
    entries
        .into_iter()
        .filter(|entry| entry["change"] == "created")
        .collect()
}

fn latest(starts: &[(usize, Timestamp)], since: Timestamp) -> Result<f64> {
    milliseconds(
        since,
        starts.iter().map(|(_, at)| *at).max().context("a node")?,
    )
}

fn milliseconds(from: Timestamp, to: Timestamp) -> Result<f64> {
    Ok((to - from).total(Unit::Millisecond)?)
}
