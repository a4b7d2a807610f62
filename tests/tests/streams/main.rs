//! `twinprobe stream` against the systems that it sends to: each window arrives once, whatever is killed.

mod command;
mod files;
mod gaps;
mod nats;
mod s3;
mod scene;
