//! The ready-made probes: each gives the expected document for its capture, an independent tool
//! agrees with the figures, and each costs what its README says. A new probe is a folder in
//! `probes/` and needs no line here.

mod cost;
mod datagrams;
mod expected;
mod flags;
mod link_layer;
mod listed;
mod live;
mod losses;
mod mixed;
mod netflow;
mod output;
mod promtool;
mod raw;
mod replay;
mod round_trips;
mod scans;
mod switched;
mod talk;
mod timeouts;
#[path = "../deploy/tools.rs"]
#[allow(dead_code, reason = "tests of deploy/ need more of it")]
mod tools;
mod tshark;
mod tunnels;
mod wire;
