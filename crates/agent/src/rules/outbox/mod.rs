//! Notifications of rules on their way to receivers. They delay neither windows nor other actions.

pub mod courier;
mod delivery;
