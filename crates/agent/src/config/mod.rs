//! A probe's configuration in two stages: a `ConfigDocument` is what a client may write, a `ProbeConfig` is a
//! configuration that obeys every rule. Validation needs no file, no kernel and no root.

pub mod interface;
pub mod probe;
pub mod validate;
pub mod window;
