//! Handlers for the nodes of `serve --nodes`.

pub mod nodes;
