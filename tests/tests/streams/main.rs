//! `twinprobe stream` against the systems that it sends to: each window arrives once, over all
//! kills.

mod behind;
mod chaos;
mod command;
mod files;
mod flows;
mod gaps;
mod ipfix;
mod kafka;
mod nats;
mod pressure;
mod push;
mod rules;
mod rules_ends;
mod s3;
mod scene;
mod tables;
