//! Tests of the fixture, the source tree, the bystanders, the installation and the kernel's
//! capabilities.

mod additions;
mod architecture;
mod benchmarks;
mod builds;
mod bystanders;
mod capabilities;
mod capture;
mod circles;
mod code;
mod cpuset;
mod demo;
mod fixture;
mod memory;
mod moongen;
mod setup;
