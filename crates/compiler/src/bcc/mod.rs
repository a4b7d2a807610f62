//! Sources in the dialect of BCC: what they define, which of their functions sees the packets, and what the header of the
//! dialect has to know of that.

pub mod calls;
pub mod dialect;
pub mod entry;
pub mod scan;
pub mod token;

#[cfg(test)]
mod tests;
