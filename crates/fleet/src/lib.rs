//! The rollout of a probe to many nodes: revisions, shares, steps and budgets. The operator and
//! `twinprobe fleet` carry out the decisions of these pure functions, so both have the same steps,
//! budgets and words.

#![forbid(unsafe_code)]

mod assign;
mod budget;
mod compiled;
mod decide;
mod losses;
mod plan;
mod report;
mod revision;
mod rollout;
mod share;
mod spread;
mod steps;
mod tally;

pub use self::assign::{Wanted, is_canary, matches, wanted};
pub use self::budget::over;
pub use self::compiled::{NodeMachine, for_node, is_form_of, with_objects};
pub use self::decide::conditions::{Standing, compiled_condition, conditions};
pub use self::decide::over_fleet::{JudgedRule, judged_rule};
pub use self::decide::probe::outcome::{is_over, lease};
pub use self::decide::probe::{
    COMPLETE, FleetDecision, FleetNews, FleetView, ROLLED_BACK, decide, invalid,
};
pub use self::decide::rule::{
    FleetRuleDecision, FleetRuleView, decide_rule, invalid_rule, misnamed_rule, rule_key, rule_of,
    rule_revision,
};
pub use self::losses::failed_inserts;
pub use self::plan::FleetPlan;
pub use self::report::{Observed, is_decided, refused, report, rule_report};
pub use self::revision::{digest, revision_name};
pub use self::rollout::{NodeView, StepVerdict, canaries, judge, members};
pub use self::share::{WHOLE, first, part};
pub use self::steps::{RolloutPlan, RolloutStep};
pub use self::tally::tally;
