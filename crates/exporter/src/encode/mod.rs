//! The encoding of documents, one file or folder per format.

pub mod document;
pub mod encoder;
pub mod event;
pub mod fragment;
pub mod json;
pub mod openmetrics;
pub mod page_format;
pub mod plain;
pub mod protobuf;
pub mod sink;
pub mod tree;
pub mod xml;
