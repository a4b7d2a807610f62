//! Streams: the windows of many daemons flow into the systems that people have, each window once. A
//! stream is an ordinary collector. It lists and reads windows, sends them to [`Receiver`]s, and
//! acknowledges a window once all of them have stored it for good. Daemons and receivers hold all
//! state; a stream has none of its own.

#![forbid(unsafe_code)]

mod args;
mod config;
#[cfg(feature = "http")]
mod http;
mod names;
mod program;
#[cfg(feature = "push")]
mod push;
mod receiver;
mod receivers;
mod rows;
mod rules;
mod run;
#[cfg(feature = "push")]
mod samples;
mod schema;
mod sources;
mod telemetry;
#[cfg(feature = "tls")]
mod tls;

pub use program::main;
pub use receiver::{
    BatchLimits, ItemFate, ItemName, Receipt, Receiver, RefusedSamples, SendError, SeriesName,
    StreamGap, StreamItem, StreamWindow,
};
pub use receivers::kind::{Destination, ReceiverOptions, ReceiverSetup, ReceiverUrl};
pub use rules::alone::{DaemonList, FleetRuleOrder, RunningFleetRule, clear_fleet_rule};
pub use rules::signing::KeyFile;
pub use rules::standing::{NodeFault, RuleStanding};
pub use sources::credentials::CredentialFiles;
pub use sources::daemon::DaemonAddress;
pub use sources::slices::{EndpointList, EndpointNames, FoundEndpoints};
