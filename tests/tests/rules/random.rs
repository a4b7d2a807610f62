//! Random rules over random windows, against a model that knows the documentation alone. The daemon
//! is killed now and then.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::random::Random;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, scaled};

use crate::scene::{close, counter, deploys, generator, wait_for_rule};

const WINDOWS: u64 = 14;
const RULES: usize = 4;

/// A rule, and its expected actions.
#[derive(Debug)]
struct ModelRule {
    name: String,
    /// The number of packets from which on the condition is true; if `is_relative`, the number that
    /// a window has more than the previous one.
    least: u64,
    is_relative: bool,
    /// The actions end below this number of packets; without it, when the condition no longer
    /// holds.
    until: Option<u64>,
    windows: u64,
    /// True if the rule fires once in an hour.
    has_cooldown: bool,
    most_actions: u64,
    /// The rule marks the audit log, or deploys a probe as well.
    does_deploy: bool,
    row: u64,
    before: Option<u64>,
    is_firing: bool,
    fired: Vec<u64>,
    is_stopped: bool,
}

impl ModelRule {
    fn new(at: usize, random: &mut Random) -> Self {
        Self {
            name: format!("r{at}"),
            least: 1 + random.below(5),
            is_relative: random.below(2) == 0,
            until: (random.below(2) == 0).then(|| 1 + random.below(5)),
            windows: 1 + random.below(3),
            has_cooldown: random.below(4) == 0,
            most_actions: 2 + random.below(5),
            does_deploy: random.below(2) == 0,
            row: 0,
            before: None,
            is_firing: false,
            fired: Vec::new(),
            is_stopped: false,
        }
    }

    fn document(&self) -> Value {
        let mut actions = vec![json!({ "mark": "{{sum(ingress.packets)}} packets" })];
        if self.does_deploy {
            actions.push(deploys(&self.probe()));
        }
        let more = if self.is_relative {
            " + sum(previous.ingress.packets)"
        } else {
            ""
        };
        let mut document = json!({
            "watch": "p", "when": format!("sum(ingress.packets) >= {}{more}", self.least), "for": self.windows,
            "cooldown": if self.has_cooldown { "1h" } else { "0s" }, "max_actions_per_hour": self.most_actions, "do": actions,
        });
        if let Some(until) = self.until {
            document["until"] = format!("sum(ingress.packets) < {until}").into();
        }
        document
    }

    fn probe(&self) -> String {
        format!("fine-{}", self.name)
    }

    /// Sees a window with so many packets.
    fn step(&mut self, window: u64, packets: u64) {
        let before = self.before.replace(packets);
        let when = match self.is_relative {
            true => before.is_some_and(|before| packets >= self.least + before),
            false => packets >= self.least,
        };
        self.row = if when { self.row + 1 } else { 0 };
        let ends = self.until.map_or(!when, |until| packets < until);
        if self.is_stopped || self.is_firing {
            self.is_firing &= !ends;
            return;
        }
        let would_end = self.until.is_some() && ends;
        let has_rested = !self.has_cooldown || self.fired.is_empty();
        if self.row < self.windows || would_end || !has_rested {
            return;
        }
        let actions = 1 + u64::from(self.does_deploy);
        if (self.fired.len() as u64 + 1) * actions > self.most_actions {
            self.is_stopped = true;
        } else {
            self.fired.push(window);
            self.is_firing = true;
        }
    }

    fn state(&self) -> &'static str {
        match (self.is_stopped, self.is_firing) {
            (true, _) => "stopped",
            (false, true) => "firing",
            (false, false) => "watching",
        }
    }

    /// Waits until the daemon's rule has judged the window, and compares it.
    fn compare(&self, daemon: &Daemon, window: u64) -> Result<()> {
        let is_over = |firing: &Value| {
            firing["done"].is_string() && (self.is_firing || firing["ended"].is_string())
        };
        let has_judged = |status: &Value| {
            let firings = status["firings"].as_array();
            let is_quiet = firings.and_then(|all| all.last()).is_none_or(is_over);
            status["state"] == "stopped" || status["window"] == window && is_quiet
        };
        let status = wait_for_rule(daemon, &self.name, has_judged)?;
        ensure!(status["state"] == self.state(), "{self:?}: {status:#}");
        let firings = status["firings"].as_array().context("firings")?;
        let fired: Vec<u64> = firings
            .iter()
            .filter_map(|firing| firing["window"].as_u64())
            .collect();
        ensure!(
            fired == self.fired && status["missed"] == 0,
            "{self:?}: {status:#}"
        );
        ensure!(
            self.is_stopped || status["holds"] == self.row,
            "{self:?}: {status:#}"
        );
        let expected = if self.is_firing && self.does_deploy {
            200
        } else {
            404
        };
        wait_for("the probe of the rule", PATIENCE, || {
            let found = daemon.get(&format!("/v1/probes/{}", self.probe())).status;
            ensure!(found == expected, "{self:?}: {found}");
            Ok(())
        })
    }
}

#[test]
fn random_rules_decide_as_the_model_does() -> Result<()> {
    let topology = Topology::new()?;
    let mut random = Random::new();
    for at in 0..scaled(2, 60) {
        sequence(&topology, &mut random, at % 2 == 0)?;
    }
    Ok(())
}

fn sequence(topology: &Topology, random: &mut Random, is_killed: bool) -> Result<()> {
    let mut daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let mut rules: Vec<ModelRule> = (0..RULES).map(|at| ModelRule::new(at, random)).collect();
    for rule in &rules {
        daemon
            .put(&format!("/v1/rules/{}", rule.name), &rule.document())
            .expect(201);
    }
    let mut generator = generator(topology)?;
    for window in 1..=WINDOWS {
        let packets = random.below(9);
        generator.send(packets)?;
        close(&daemon);
        rules.iter_mut().for_each(|rule| rule.step(window, packets));
        // The rules may have judged the window by then, or not.
        if is_killed && random.below(4) == 0 {
            let directories = daemon.kill()?;
            daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        }
        // Some windows follow each other before anything is compared.
        if random.below(3) > 0 || window == WINDOWS {
            for rule in &rules {
                rule.compare(&daemon, window)
                    .with_context(|| format!("window {window}, {packets} packets"))?;
            }
        }
    }
    for rule in &rules {
        daemon
            .delete(&format!("/v1/rules/{}", rule.name))
            .expect(204);
        daemon
            .get(&format!("/v1/probes/{}", rule.probe()))
            .expect(404);
    }
    daemon.delete("/v1/probes/p").expect(204);
    drop(daemon.terminate()?);
    Ok(())
}
