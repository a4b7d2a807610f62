//! Notifications of rules on their way to receivers. They hold up neither windows nor other actions.

pub mod courier;
mod delivery;
