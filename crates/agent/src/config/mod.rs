//! A probe's configuration in two stages: a document is what a client may write, `ProbeConfig` is what holds once every

pub mod interface;
pub mod probe;
pub mod validate;
pub mod window;
