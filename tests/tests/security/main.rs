//! The daemon as something to expose: rights of clients, limits of connections, what programs may do and cost.

mod addresses;
mod bodies;
mod changes;
mod connections;
mod cost;
mod crowd;
mod doors;
mod guarded;
mod readers;
mod records;
mod roles;
mod rotation;
mod scene;
mod tls;
