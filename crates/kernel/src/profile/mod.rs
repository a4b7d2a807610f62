//! The places where CPUs spend their time: samples of their clocks, and the programs in these
//! samples.

pub mod owners;
pub mod sampler;
