//! The transfer of counts to maps of another layout.

pub mod adder;
pub mod changes;
pub mod exchanger;
pub mod transfer;
