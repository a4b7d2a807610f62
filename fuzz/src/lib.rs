//! The bodies of the fuzz targets, and the runner of ordinary tests.

#![forbid(unsafe_code)]

pub mod bodies;
pub mod capture;
pub mod config;
pub mod runner;
