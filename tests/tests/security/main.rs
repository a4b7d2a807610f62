//! The rights of operators, programs and strangers.

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
mod heavy;
mod limits;
mod objects;
mod privileges;
mod readers;
mod records;
mod roles;
mod room;
mod rotation;
mod scene;
mod schema;
mod sources;
mod streams;
mod systemd;
mod tls;
mod trust;
