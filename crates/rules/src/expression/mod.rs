//! Conditions in CEL: parsed within bounds, checked against the metrics of a probe, evaluated over
//! windows.

pub mod budget;
pub mod checker;
pub mod expression;
pub mod fault;
pub mod function;
pub mod operators;
pub mod parse;
pub mod path;
pub mod reading;
