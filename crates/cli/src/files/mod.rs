//! Probe files: JSON or YAML with one configuration or many, and the sources that they refer to.

pub mod beside;
pub mod contents;
pub mod files;
pub mod object;
pub mod project;
pub mod sources;
