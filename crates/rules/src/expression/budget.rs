//! The limits for all expressions of a rule together. Each expression costs the run of a parser
//! when it is checked, and later walks over windows.

use super::fault::ExpressionFault;

/// The most expressions of a rule. A template has separate limits.
const MOST_EXPRESSIONS: usize = 64;
/// The most numbers of windows that these expressions read.
const MOST_READINGS: usize = 64;

/// The expressions of a rule or a template so far, and the numbers of windows that they read.
#[derive(Debug, Default)]
pub struct ExpressionBudget {
    expressions: usize,
    readings: usize,
}

impl ExpressionBudget {
    /// Counts an expression, before its parsing.
    pub fn count(&mut self) -> Result<(), ExpressionFault> {
        self.expressions += 1;
        within(self.expressions, MOST_EXPRESSIONS, "expressions")
    }

    /// Counts the numbers of windows that an expression reads.
    pub fn read(&mut self, readings: usize) -> Result<(), ExpressionFault> {
        self.readings += readings;
        within(
            self.readings,
            MOST_READINGS,
            "numbers of windows in its expressions",
        )
    }
}

fn within(count: usize, most: usize, what: &str) -> Result<(), ExpressionFault> {
    if count <= most {
        return Ok(());
    }
    let message = format!(
        "a rule or a template has at most {most} {what}; remove some, or make several rules"
    );
    Err(ExpressionFault::at_start(message))
}
