//! Who may do what, and what is promised against those who may not.

mod changes;
mod doors;
mod guarded;
mod records;
mod roles;
mod rotation;
mod schema;
