//! Kafka: a message for each window. The windows of a node and how far it is are one transaction.

pub mod client;
pub mod cursors;
pub mod node;
pub mod options;
pub mod receiver;
pub mod topics;
