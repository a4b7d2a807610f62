//! What an operator, a program and a stranger may do, and what they may not.

mod addresses;
mod admission;
mod bodies;
mod changes;
mod compiler;
mod connections;
mod cost;
mod crowd;
mod doors;
mod guarded;
mod limits;
mod privileges;
mod readers;
mod records;
mod roles;
mod rotation;
mod scene;
mod schema;
mod sources;
mod systemd;
mod tls;
