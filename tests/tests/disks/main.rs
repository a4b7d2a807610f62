//! Disks: after any fault of the disk of the state directory, the daemon keeps its promises to
//! clients.

mod bed;
mod chance;
mod errors;
mod names;
mod power;
mod reboots;
mod scene;
mod told;
