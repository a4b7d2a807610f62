//! A mistake in a file or an option.

use std::fmt;

/// A mistake, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamMistake {
    /// The file with line and column, or the option.
    pub place: String,
    /// The path of the field; may be empty.
    pub field: String,
    pub message: String,
}

impl fmt::Display for StreamMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.place, &self.field, &self.message];
        let parts: Vec<&str> = parts
            .into_iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        f.write_str(&parts.join(": "))
    }
}
