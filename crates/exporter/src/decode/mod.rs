//! The decoding of bytes: a [`plan::Plan`] walks over the bytes and calls a [`sink::ValueSink`], which writes the values
//! in its format. It collects nothing on the way and allocates nothing per row.

pub mod addresses;
pub mod decoder;
pub mod fit;
pub mod key;
pub mod sink;
pub mod text;
