//! The command line: its output, its changes, and its live views, against a real daemon with real
//! packets.

mod beside;
mod deploy;
mod errors;
mod fleet;
mod live;
mod local;
mod propose;
mod rollout;
mod rule_rollout;
mod rules;
mod scene;
