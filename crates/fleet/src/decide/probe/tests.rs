use std::collections::BTreeMap;

use twinprobe_api::{FleetProbeSpec, NodeReport, NodeState};

use super::outcome::is_over;
use super::*;
use crate::assign::{Wanted, wanted};
use crate::share::WHOLE;

const SOURCE: &str = r#"{"interface": "eth0", "ingress": {"source": "int x;", "metrics": [{"name": "a", "map": "a"}]}}"#;

fn plan(help: &str, rollout: &str) -> FleetPlan {
    let mut config: serde_json::Value = serde_json::from_str(SOURCE).unwrap();
    config["ingress"]["metrics"][0]["help"] = help.into();
    let rollout = serde_json::from_str(rollout).unwrap();
    let spec = FleetProbeSpec {
        config: Some(config),
        rollout,
        ..FleetProbeSpec::default()
    };
    FleetPlan::new("flows", &spec, |_, _| unreachable!()).unwrap()
}

/// A fleet in which each message may be late. Of the writes of a decision, all but the first may be
/// lost.
struct Fleet {
    nodes: BTreeMap<String, (BTreeMap<String, String>, Option<NodeReport>)>,
    status: FleetStatus,
    assignment: Option<AssignmentSpec>,
    seconds: i64,
    news: Vec<FleetNews>,
    /// The highest number of nodes that had each revision during a step that is not the last.
    early: usize,
}

impl Fleet {
    fn new(count: usize) -> Self {
        let nodes = (0..count)
            .map(|i| (format!("n{i}"), (BTreeMap::new(), None)))
            .collect();
        let (status, assignment, news) = (FleetStatus::default(), None, Vec::new());
        Self {
            nodes,
            status,
            assignment,
            seconds: 1_000_000,
            news,
            early: 0,
        }
    }

    /// Decides once. A lost assignment has the same effect as an operator that ends between the two
    /// writes.
    fn decide(
        &mut self,
        plan: &FleetPlan,
        generation: i64,
        paused: bool,
        promoted: Option<&str>,
        lost: bool,
    ) {
        self.seconds += 1;
        let views: Vec<NodeView<'_>> = self
            .nodes
            .iter()
            .map(|(name, (labels, report))| NodeView {
                name,
                labels,
                report: report.as_ref(),
            })
            .collect();
        let decision = decide(&FleetView {
            plan,
            generation,
            is_paused: paused,
            promoted,
            status: &self.status,
            assignment: self.assignment.as_ref(),
            nodes: &views,
            now: Timestamp::from_second(self.seconds).unwrap(),
        });
        self.status = decision.status;
        self.news.extend(decision.news);
        if !lost {
            self.assignment = decision.assignment;
        }
    }

    /// Lets a node follow the assignment, and report.
    fn act(&mut self, at: usize, cost: impl Fn(&str, &str) -> f64) {
        let name = format!("n{at}");
        let (labels, report) = self.nodes.get_mut(&name).unwrap();
        let wanted = self
            .assignment
            .as_ref()
            .map_or(Wanted::Nothing, |it| wanted(it, &name, labels));
        *report = match wanted {
            Wanted::Revision(revision) => Some(NodeReport {
                node: name.clone(),
                revision: revision.to_owned(),
                state: NodeState::Running,
                windows: 1000,
                ns_per_packet: Some(cost(&name, revision)),
                ..NodeReport::default()
            }),
            Wanted::Nothing | Wanted::NotSelected => None,
        };
    }

    fn having(&self, revision: &str) -> usize {
        let has = |report: &&NodeReport| report.revision == revision;
        self.nodes
            .values()
            .filter_map(|(_, report)| report.as_ref())
            .filter(has)
            .count()
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let condition = self
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
            .unwrap();
        (condition.status.clone(), condition.reason.clone())
    }

    /// Runs until nothing changes, in an order that depends on `seed`.
    fn run(
        &mut self,
        plan: &FleetPlan,
        generation: i64,
        seed: u64,
        cost: impl Fn(&str, &str) -> f64 + Copy,
    ) {
        let mut random = seed;
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % below
        };
        let count = self.nodes.len();
        for _ in 0..count * 60 {
            match next(3) {
                0 => self.decide(plan, generation, false, None, next(3) == 0),
                _ => self.act(next(count), cost),
            }
            let is_early = self
                .status
                .step
                .as_deref()
                .is_some_and(|step| step == "canary" || step == "10%");
            if is_early {
                self.early = self.early.max(self.having(&plan.revision));
            }
        }
        for at in 0..count {
            self.decide(plan, generation, false, None, false);
            self.act(at, cost);
        }
        self.decide(plan, generation, false, None, false);
    }
}

#[test]
fn any_order_of_messages_and_lost_writes_ends_on_every_node() {
    for seed in 0..12 {
        let mut fleet = Fleet::new(12);
        let first = plan("first", r#"{"canary": 2, "steps": ["10%", "100%"]}"#);
        fleet.run(&first, 1, seed, |_, _| 10.0);
        assert_eq!(
            fleet.status.step.as_deref(),
            Some(COMPLETE),
            "{seed}: {:?}",
            fleet.news
        );
        assert_eq!(
            (fleet.having(&first.revision), fleet.status.counts.running),
            (12, 12)
        );
        assert!(
            fleet.early <= 2 + 5,
            "{seed}: {} nodes in the first steps",
            fleet.early
        );
        assert_eq!(
            fleet.condition("Available"),
            ("True".to_owned(), "Running".to_owned())
        );
        assert_eq!(fleet.news.first().unwrap().reason, "Started");
        assert_eq!(
            fleet
                .news
                .iter()
                .filter(|news| news.reason == "Complete")
                .count(),
            1
        );
    }
}

#[test]
fn a_revision_that_costs_too_much_touches_the_canaries_only() {
    let rollout = r#"{"canary": 2, "steps": ["10%", "100%"], "budget": {"nsPerPacket": 100}}"#;
    let (first, second) = (plan("first", rollout), plan("second", rollout));
    let cost = |_: &str, revision: &str| {
        if revision == second.revision {
            400.0
        } else {
            10.0
        }
    };
    for seed in 0..12 {
        let mut fleet = Fleet::new(12);
        fleet.run(&first, 1, seed, cost);
        fleet.early = 0;
        fleet.run(&second, 2, seed, cost);
        assert!(fleet.early <= 2, "{seed}: {}", fleet.early);
        assert_eq!(fleet.status.step.as_deref(), Some(ROLLED_BACK));
        assert_eq!(
            (
                fleet.having(&first.revision),
                fleet.having(&second.revision)
            ),
            (12, 0),
            "{seed}"
        );
        assert_eq!(fleet.status.revision.as_ref(), Some(&first.revision));
        assert_eq!(fleet.condition("Degraded").0, "True");
        assert_eq!(fleet.condition("Progressing").1, "RolledBack");
        let failure = fleet.status.failures.first().unwrap();
        assert!(
            failure.reason.starts_with("400 ns per packet"),
            "{failure:?}"
        );
        // The operator does not retry the failed revision at any later look. A change of the object
        // is another try.
        let began = fleet
            .news
            .iter()
            .filter(|news| news.reason == "Started")
            .count();
        fleet.run(&second, 2, seed + 1, cost);
        assert_eq!(
            fleet
                .news
                .iter()
                .filter(|news| news.reason == "Started")
                .count(),
            began
        );
        fleet.run(&second, 3, seed, |_, _| 10.0);
        assert_eq!(fleet.having(&second.revision), 12);
    }
}

#[test]
fn the_first_revision_that_fails_is_removed() {
    let mut fleet = Fleet::new(5);
    let only = plan(
        "only",
        r#"{"canary": 1, "steps": ["100%"], "budget": {"nsPerPacket": 1}}"#,
    );
    fleet.run(&only, 1, 3, |_, _| 10.0);
    assert_eq!(
        (fleet.having(&only.revision), &fleet.assignment),
        (0, &None)
    );
    assert_eq!(fleet.condition("Available").0, "False");
    assert!(
        fleet
            .news
            .last()
            .unwrap()
            .message
            .ends_with("the probe is removed from nodes")
    );
}

#[test]
fn people_stop_and_promote_steps() {
    let mut fleet = Fleet::new(5);
    let it = plan(
        "it",
        r#"{"canary": 1, "steps": ["100%"], "budget": {"nsPerPacket": 1}, "onFailure": "Pause"}"#,
    );
    fleet.decide(&it, 1, true, None, false);
    (0..5).for_each(|at| fleet.act(at, |_, _| 10.0));
    fleet.decide(&it, 1, true, None, false);
    assert_eq!(fleet.having(&it.revision), 1);
    assert_eq!(
        fleet.condition("Progressing"),
        ("False".to_owned(), "Paused".to_owned())
    );
    fleet.decide(&it, 1, false, None, false);
    assert_eq!(fleet.condition("Progressing").1, "Stopped");
    let why = fleet.status.conditions[1].message.clone();
    fleet.decide(&it, 1, false, None, false);
    assert_eq!(fleet.status.conditions[1].message, why, "the reason stays");
    assert_eq!(fleet.having(&it.revision), 1);
    // Only the present step can be promoted.
    fleet.decide(&it, 1, false, Some("flows-0/canary"), false);
    assert_eq!(fleet.status.step.as_deref(), Some("canary"));
    let promoted = format!("{}/canary", it.revision);
    fleet.decide(&it, 1, true, Some(&promoted), false);
    assert_eq!(fleet.assignment.as_ref().unwrap().share, WHOLE);
    (0..5).for_each(|at| fleet.act(at, |_, _| 10.0));
    assert_eq!(fleet.having(&it.revision), 5);
    fleet.decide(&it, 1, false, Some(&promoted), false);
    assert_eq!(
        fleet.condition("Progressing").1,
        "Stopped",
        "the last step is judged"
    );
    fleet.decide(&it, 1, false, Some(&format!("{}/100%", it.revision)), false);
    assert_eq!(fleet.status.step.as_deref(), Some(COMPLETE));
}

#[test]
fn what_nodes_had_before_is_back_at_once() {
    let mut fleet = Fleet::new(5);
    let (old, new) = (
        plan("old", r#"{"steps": ["100%"]}"#),
        plan("new", r#"{"steps": ["100%"]}"#),
    );
    fleet.run(&old, 1, 1, |_, _| 1.0);
    fleet.decide(&new, 2, true, None, false);
    fleet.act(0, |_, _| 1.0);
    fleet.decide(&old, 3, false, None, false);
    assert_eq!(fleet.status.step.as_deref(), Some(COMPLETE));
    assert_eq!(fleet.news.last().unwrap().reason, "Reverted");
    let assignment = fleet.assignment.as_ref().unwrap();
    assert_eq!(
        (&assignment.revision, &assignment.previous, assignment.share),
        (&old.revision, &None, WHOLE)
    );
}

#[test]
fn a_lease_is_renewed_in_time() {
    let mut it = plan("it", r#"{"steps": ["100%"]}"#);
    it.config.expires = Some("30s".to_owned());
    let mut fleet = Fleet::new(1);
    fleet.decide(&it, 1, false, None, false);
    let first = fleet.assignment.clone().unwrap();
    assert!(!is_over(
        &first,
        Timestamp::from_second(fleet.seconds + 30).unwrap()
    ));
    assert!(is_over(
        &first,
        Timestamp::from_second(fleet.seconds + 31).unwrap()
    ));
    fleet.seconds += 8;
    fleet.decide(&it, 1, false, None, false);
    assert_eq!(
        fleet.assignment.as_ref(),
        Some(&first),
        "no write before a third of the lease"
    );
    fleet.seconds += 2;
    fleet.decide(&it, 1, false, None, false);
    assert_ne!(fleet.assignment.unwrap().renewed, first.renewed);
}
