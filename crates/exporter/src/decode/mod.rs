//! The decoding of bytes: a [`plan::Plan`] is walked over the bytes and calls a [`sink::ValueSink`], which writes the
//! values in its format. Nothing is collected on the way and nothing is allocated per row.

pub mod decoder;
pub mod fit;
pub mod key;
pub mod sink;
pub mod text;
