//! Names of addresses and ports, where the operator asks for them. No reading waits for a name.

pub mod book;
pub mod dns;
pub mod options;
pub mod places;
pub mod question;
pub mod tables;
