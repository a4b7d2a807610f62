//! Kafka: a message for each window. The windows of a node and its position are one transaction.

pub mod client;
pub mod cursors;
pub mod node;
pub mod options;
pub mod receiver;
pub mod topics;
