//! The parts that all experiments share: running, comparing values, writing results down.

pub mod client;
pub mod document;
pub mod figure;
pub mod machine;
pub mod moongen;
pub mod options;
pub mod paired;
pub mod section;
pub mod site;
pub mod table;
