//! Content of one layout as content of another, by the names of the fields: what a new version of a source still calls
//! the same keeps its content, whatever has become of its place and width.

pub mod counters;
pub mod rows;
pub mod value;

#[cfg(test)]
mod tests;
