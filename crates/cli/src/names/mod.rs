//! Names beside the addresses that commands show.

pub mod addresses;
