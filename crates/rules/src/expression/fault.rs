//! The mistake in an expression, and its place.

/// A mistake in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionFault {
    /// The line, counted from 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    pub message: String,
}

impl ExpressionFault {
    pub fn at_start(message: impl Into<String>) -> Self {
        Self {
            line: 1,
            column: 1,
            message: message.into(),
        }
    }

    /// The place is a character of the text, counted from 0.
    pub fn at(text: &str, character: usize, message: impl Into<String>) -> Self {
        let (mut line, mut column) = (1, 1);
        for c in text.chars().take(character) {
            (line, column) = if c == '\n' {
                (line + 1, 1)
            } else {
                (line, column + 1)
            };
        }
        Self {
            line,
            column,
            message: message.into(),
        }
    }
}
