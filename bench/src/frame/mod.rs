//! What all experiments share: how they are run, how values are compared, and how results are written down.

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
