//! The fixture of the end-to-end tests: namespaces and veth pairs ([`Topology`]), a daemon
//! ([`Daemon`]), exactly counted traffic ([`traffic::Generator`]) and counters that are independent
//! of the daemon ([`counter`]).
//!
//! Everything here is RAII: a test that panics leaves no namespace, process, pin or program behind.
pub mod attachments;
pub mod attacks;
pub mod bpf;
mod bystanders;
pub mod cable;
pub mod certificates;
pub mod cluster;
mod copies;
pub mod counter;
mod daemon;
mod described;
mod directories;
pub mod disk;
pub mod egress;
pub mod event_scene;
pub mod explore;
pub mod hog;
mod holdings;
pub mod http;
pub mod layouts;
mod leaks;
mod log;
pub mod maps;
pub mod measure;
pub mod model;
pub mod named;
pub mod netns;
pub mod packets;
pub mod pidfd;
pub mod pods;
pub mod probes;
pub mod programs;
pub mod random;
pub mod reboot;
pub mod replays;
mod room;
pub mod sample;
pub mod servers;
pub mod silent;
pub mod store;
pub mod stream;
mod tmpfs;
pub mod topology;
pub mod traffic;
pub mod unit;
pub mod wait;
pub mod webhook;
pub mod windows;
pub mod wire;

pub use bystanders::{Bystanders, Stand};
pub use copies::copy_directory;
pub use daemon::{Daemon, DaemonOptions, binary, helper};
pub use directories::Directories;
pub use disk::Disk;
pub use egress::EgressForward;
pub use http::Response;
pub use leaks::KernelObjects;
pub use netns::{Namespace, NamespaceLink};
pub use store::Store;
pub use tmpfs::Tmpfs;
pub use topology::{InterfaceStats, Topology, veth_pair};
pub use twinprobe_test_attributes::{alone, soak, timed};

/// Returns the number of repetitions: `usual` times `TWINPROBE_SCALE` (default 1), at least one;
/// `full` if `TWINPROBE_SCALE` is `full`.
///
/// # Panics
/// Panics if `TWINPROBE_SCALE` is neither a number nor `full`.
pub fn scaled(usual: u64, full: u64) -> u64 {
    match std::env::var("TWINPROBE_SCALE").as_deref() {
        Err(_) | Ok("") => usual,
        Ok("full") => full,
        Ok(scale) => {
            let scale: f64 = scale
                .parse()
                .expect("TWINPROBE_SCALE is a number or `full`");
            ((usual as f64 * scale) as u64).max(1)
        }
    }
}
