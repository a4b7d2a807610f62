//! Rules over windows: their expressions, their checks and their decisions. No IO.
//!
//! [`Rule::new`] checks a [`RuleDocument`](twinprobe_api::RuleDocument) against the
//! [`WindowShape`](twinprobe_ebpf_common::window::shape::WindowShape) of the watched probe.
//! [`Rule::judge`] evaluates the conditions over a window, and [`RuleState::step`] decides what
//! follows.

#![forbid(unsafe_code)]

mod expression;
mod fields;
mod fleet;
mod rule;
#[cfg(test)]
mod shapes;
mod state;
mod template;
mod view;

pub use self::expression::expression::NoValue;
pub use self::expression::fault::ExpressionFault;
pub use self::fleet::object::check_fleet_rule;
pub use self::fleet::rule::{
    FleetEvent, FleetRule, NodeWindow, PeriodDecision, PeriodValues, end_of, period_of, reason,
    reason_back, state_before,
};
pub use self::rule::{FLEET, Judgement, MissingValue, Rule};
pub use self::state::{Decision, RuleState};
pub use self::template::{Templates, check_template};
pub use self::view::WindowView;
