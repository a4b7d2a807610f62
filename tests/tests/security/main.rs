//! Rights of clients, and promises against those who lack them.

mod changes;
mod doors;
mod guarded;
mod records;
mod roles;
mod rotation;
mod schema;
