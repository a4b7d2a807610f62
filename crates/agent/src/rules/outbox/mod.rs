//! The notifications of rules that have not arrived at their receivers yet. They delay neither
//! windows nor other actions.

pub mod courier;
mod delivery;
