//! Rules over windows: their expressions, their checks and their decisions. No IO.
//!
//! A [`RuleDocument`](twinprobe_api::RuleDocument) becomes a [`Rule`], which is checked against the [`WindowShape`](twinprobe_ebpf_common::window::shape::WindowShape) of the
//! probe that it watches. [`Rule::judge`] tells what the condition says of a window, and [`RuleState::step`] what follows.

#![forbid(unsafe_code)]

mod expression;
mod fields;
mod rule;
#[cfg(test)]
mod shapes;
mod state;
mod template;
mod view;

pub use self::expression::fault::ExpressionFault;
pub use self::rule::{Judgement, Rule};
pub use self::state::{Decision, RuleState};
pub use self::view::WindowView;
