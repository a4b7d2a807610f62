//! The places where CPUs spend their time: samples of their clocks, and the programs that these met.

pub mod owners;
pub mod sampler;
