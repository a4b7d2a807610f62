//! The conversion of content from one layout to another by the names of fields: a field whose name
//! stays the same in a new version of a source keeps its content, even if its place or width
//! changes.

pub mod rows;
pub mod value;

#[cfg(test)]
mod tests;
