//! The daemon as something to expose: rights of clients, limits of connections, and the answers that clients see.

mod addresses;
mod bodies;
mod changes;
mod connections;
mod crowd;
mod doors;
mod guarded;
mod readers;
mod records;
mod roles;
mod rotation;
mod scene;
mod tls;
