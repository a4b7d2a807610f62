//! The daemon as something to expose: who may connect, what connections may take, and what clients see.

mod addresses;
mod bodies;
mod connections;
mod crowd;
mod readers;
mod scene;
mod tls;
