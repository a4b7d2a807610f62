//! The counters of rules.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::telemetry::counters::Amount;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRule {
    rule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    rule: String,
    outcome: &'static str,
}

/// The outcomes of attempts at actions.
const OUTCOMES: [&str; 2] = ["taken", "failed"];

/// The families that have a member for each rule.
#[derive(Debug)]
pub struct RuleFamilies {
    windows: Family<OfRule, Counter>,
    missed: Family<OfRule, Counter>,
    firings: Family<OfRule, Counter>,
    actions: Family<OfOutcome, Counter>,
    stopped: Family<OfRule, Amount<u64>>,
    waiting: Family<OfRule, Amount<u64>>,
    given_up: Family<OfRule, Counter>,
}

impl RuleFamilies {
    pub fn new(registry: &mut Registry) -> Self {
        let families = Self {
            windows: Family::default(),
            missed: Family::default(),
            firings: Family::default(),
            actions: Family::default(),
            stopped: Family::default(),
            waiting: Family::default(),
            given_up: Family::default(),
        };
        registry.register(
            "twinprobe_rule_windows",
            "Windows that a rule has judged",
            families.windows.clone(),
        );
        let help = "Windows that were removed before a rule could judge them";
        registry.register(
            "twinprobe_rule_missed_windows",
            help,
            families.missed.clone(),
        );
        registry.register(
            "twinprobe_rule_firings",
            "Windows at which a rule has fired",
            families.firings.clone(),
        );
        let help = "Attempts at actions of a rule, by outcome";
        registry.register("twinprobe_rule_actions", help, families.actions.clone());
        let help = "Whether a rule has stopped itself";
        registry.register("twinprobe_rule_stopped", help, families.stopped.clone());
        let help = "Notifications of a rule that have not arrived yet";
        registry.register(
            "twinprobe_rule_notifications_waiting",
            help,
            families.waiting.clone(),
        );
        let help = "Notifications of a rule that did not arrive and are not sent again";
        registry.register(
            "twinprobe_rule_notifications_given_up",
            help,
            families.given_up.clone(),
        );
        families
    }

    pub fn judged(&self, rule: &str, has_fired: bool) {
        self.windows.get_or_create(&of(rule)).inc();
        self.firings
            .get_or_create(&of(rule))
            .inc_by(has_fired.into());
    }

    pub fn missed(&self, rule: &str, windows: u64) {
        self.missed.get_or_create(&of(rule)).inc_by(windows);
    }

    pub fn acted(&self, rule: &str, is_taken: bool) {
        let outcome = OUTCOMES[usize::from(!is_taken)];
        self.actions
            .get_or_create(&OfOutcome {
                rule: rule.to_owned(),
                outcome,
            })
            .inc();
    }

    pub fn set_stopped(&self, rule: &str, is_stopped: bool) {
        self.stopped.get_or_create(&of(rule)).set(is_stopped.into());
    }

    pub fn set_waiting(&self, rule: &str, notifications: usize) {
        self.waiting
            .get_or_create(&of(rule))
            .set(u64::try_from(notifications).unwrap_or(u64::MAX));
    }

    pub fn given_up(&self, rule: &str) {
        self.given_up.get_or_create(&of(rule)).inc();
    }

    pub fn forget(&self, rule: &str) {
        let label = of(rule);
        self.waiting.remove(&label);
        self.given_up.remove(&label);
        self.windows.remove(&label);
        self.missed.remove(&label);
        self.firings.remove(&label);
        self.stopped.remove(&label);
        for outcome in OUTCOMES {
            self.actions.remove(&OfOutcome {
                rule: rule.to_owned(),
                outcome,
            });
        }
    }
}

fn of(rule: &str) -> OfRule {
    OfRule {
        rule: rule.to_owned(),
    }
}
