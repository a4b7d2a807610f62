//! The decoding of bytes: a [`plan::Plan`] walks over the bytes and calls a [`sink::ValueSink`],
//! which writes the values in its format. The walk keeps no values and allocates no memory per row.

pub mod addresses;
pub mod decoder;
pub mod fit;
pub mod key;
pub mod sink;
pub mod text;
