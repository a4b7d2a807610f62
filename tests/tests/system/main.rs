//! The fixture, the source tree, the probes that stand beside others, and what the kernel is found to be capable of.

mod architecture;
mod bystanders;
mod capabilities;
mod capture;
mod cpuset;
mod fixture;
mod setup;
