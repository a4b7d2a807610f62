//! The command line: what it prints, what it changes, and what it shows live, against a real daemon with real packets.

mod beside;
mod deploy;
mod errors;
mod fleet;
mod live;
mod local;
mod rollout;
mod rules;
mod scene;
