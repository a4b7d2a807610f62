//! Conversion of content from one layout to another by the names of the fields: a field whose name a new
//! version of a source keeps also keeps its content, even if its place or width changes.

pub mod rows;
pub mod value;

#[cfg(test)]
mod tests;
