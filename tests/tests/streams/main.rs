//! `twinprobe stream` against the systems that it sends to: each window arrives once, whatever is killed.

mod command;
mod files;
mod flows;
mod gaps;
mod ipfix;
mod ipfix_reading;
mod kafka;
mod nats;
mod postgres;
mod push;
mod s3;
mod scene;
