//! Names of addresses and ports, from the sources that the operator configures. No reading waits
//! for a name.

pub mod book;
pub mod dns;
pub mod options;
pub mod places;
pub mod question;
pub mod tables;
