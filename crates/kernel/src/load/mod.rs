//! The loading of a probe: maps, programs, pins, and the content taken over from an earlier
//! deployment.

pub mod bind;
pub mod both;
pub mod carry;
pub mod clear;
pub mod deadline;
pub mod direction;
pub mod examine;
pub mod fill;
pub mod maps;
pub mod pins;
pub mod refusal;
pub mod rewrite;
pub mod twins;
pub mod verifier;
