//! Disks: whatever happens to the disk of the state, clients find what they were told.

mod bed;
mod chance;
mod errors;
mod names;
mod power;
mod reboots;
mod scene;
mod told;
