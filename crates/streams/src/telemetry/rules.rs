//! The counters of rules over a fleet.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFleetRule {
    rule: String,
}

type RuleCounter = Family<OfFleetRule, Counter>;

/// The counters of all rules of a stream.
#[derive(Debug, Default)]
pub struct FleetRuleFamilies {
    periods: RuleCounter,
    late: RuleCounter,
    firings: RuleCounter,
    failures: RuleCounter,
    stopped: Family<OfFleetRule, Gauge>,
    unjudged: RuleCounter,
    waiting: Family<OfFleetRule, Gauge>,
    nodes: Family<OfFleetRule, Gauge>,
}

/// The counters of one rule.
#[derive(Clone, Debug)]
pub struct FleetRuleMeter {
    pub periods: Counter,
    /// The number of windows that arrived after their period was judged.
    pub late: Counter,
    pub firings: Counter,
    /// Actions that failed at a node, and notifications that did not arrive.
    pub failures: Counter,
    /// 1 if the rule has stopped itself, or can't judge the present windows.
    pub stopped: Gauge,
    /// Windows that the rule could not judge.
    pub unjudged: Counter,
    /// The notifications that have not arrived yet.
    pub waiting: Gauge,
    /// The nodes whose windows the rule judges.
    pub nodes: Gauge,
}

impl FleetRuleFamilies {
    /// Returns the counters of a rule.
    pub fn of(&self, rule: &str) -> FleetRuleMeter {
        let of = OfFleetRule {
            rule: rule.to_owned(),
        };
        let counter = |family: &RuleCounter| family.get_or_create(&of).clone();
        FleetRuleMeter {
            periods: counter(&self.periods),
            late: counter(&self.late),
            firings: counter(&self.firings),
            failures: counter(&self.failures),
            stopped: self.stopped.get_or_create(&of).clone(),
            unjudged: counter(&self.unjudged),
            waiting: self.waiting.get_or_create(&of).clone(),
            nodes: self.nodes.get_or_create(&of).clone(),
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        let mut family = |name: &str, help: &str, family: &RuleCounter| {
            registry.register(name, help, family.clone());
        };
        family(
            "rule_periods",
            "Periods that a rule over the fleet has judged",
            &self.periods,
        );
        family(
            "rule_late_windows",
            "Windows that came after their period was judged",
            &self.late,
        );
        family(
            "rule_firings",
            "Periods at which a rule over the fleet has fired",
            &self.firings,
        );
        family(
            "rule_failures",
            "Actions of such a rule that failed at a node, and notifications that did not arrive",
            &self.failures,
        );
        family(
            "rule_unjudged_windows",
            "Windows that a rule could not judge",
            &self.unjudged,
        );
        let help =
            "Whether a rule over the fleet has stopped itself, or can't judge the present windows";
        registry.register("rule_stopped", help, self.stopped.clone());
        let help = "Notifications that have not arrived yet";
        registry.register("rule_notifications_waiting", help, self.waiting.clone());
        registry.register(
            "rule_nodes",
            "Nodes whose windows the rule judges",
            self.nodes.clone(),
        );
    }
}
