//! OTLP metrics over HTTP, in protobuf: delta points with the start and the end of their window.

pub mod options;
pub mod point;
pub mod protocol;
