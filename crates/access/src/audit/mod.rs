//! The record of requests: one line of JSON for each, written when the answer's head is known.
//! Requests without a credential, or refused before their handler, share lines: a client without
//! rights can't fill the disk.

pub mod line;
pub mod log;
pub mod out;
pub mod record;
pub mod repeats;
#[cfg(test)]
mod tests;
