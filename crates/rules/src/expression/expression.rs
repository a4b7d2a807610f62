//! An expression that was checked.

use cel::common::ast::IdedExpr;
use cel::{Context, Value};

use super::checker::{Checker, variable};
use super::fault::ExpressionFault;
use super::parse::parse;
use super::reading::{Kind, Question, Reading, WindowFunction};
use crate::view::WindowView;
use twinprobe_ebpf_common::window::shape::WindowShape;

/// An expression over windows of one shape.
#[derive(Clone, Debug)]
pub struct Expression {
    tree: IdedExpr,
    readings: Vec<Reading>,
    kind: Kind,
}

impl Expression {
    /// Parses and checks a condition.
    pub fn condition(text: &str, shape: &WindowShape) -> Result<Self, ExpressionFault> {
        let expression = Self::value(text, shape)?;
        match expression.kind {
            Kind::Boolean => Ok(expression),
            other => {
                let message =
                    format!("a condition is true or false, and this is {}: compare it", other.name());
                Err(ExpressionFault::at_start(message))
            }
        }
    }

    /// Parses an expression. With the shape of the windows, this also checks its names and types.
    pub fn check(text: &str, shape: Option<&WindowShape>) -> Result<(), ExpressionFault> {
        match shape {
            Some(shape) => Self::value(text, shape).map(drop),
            None => parse(text, |_, _| Ok(())),
        }
    }

    /// Parses and checks an expression of any kind.
    pub fn value(text: &str, shape: &WindowShape) -> Result<Self, ExpressionFault> {
        parse(text, |tree, places| {
            let mut checker = Checker::new(text, places, shape);
            let (tree, kind) = checker.check(tree)?;
            Ok(Self { tree, readings: checker.readings, kind })
        })
    }

    /// Tells whether the expression asks for a percentile.
    pub fn asks_percentiles(&self) -> bool {
        self.readings.iter().any(|reading| match &reading.question {
            Question::Metric(question) => matches!(question.function, WindowFunction::Percentile(_)),
            _ => false,
        })
    }

    /// Evaluates the expression. `None` if it needs a window before this one, and that window is missing.
    pub fn evaluate(
        &self,
        window: &WindowView<'_>,
        previous: Option<&WindowView<'_>>,
    ) -> Result<Option<Value>, String> {
        let mut context = Context::default();
        for (index, reading) in self.readings.iter().enumerate() {
            let asked = if reading.of_previous { previous } else { Some(window) };
            let Some(asked) = asked else { return Ok(None) };
            context.add_variable_from_value(variable(index), reading.question.ask(asked));
        }
        Value::resolve(&self.tree, &context).map(Some).map_err(|error| error.to_string())
    }

    /// Tells whether a condition holds. A condition that needs the window before this one does not hold if that window
    /// is missing.
    pub fn holds(&self, window: &WindowView<'_>, previous: Option<&WindowView<'_>>) -> Result<bool, String> {
        match self.evaluate(window, previous)? {
            None => Ok(false),
            Some(Value::Bool(holds)) => Ok(holds),
            Some(other) => Err(format!("the condition is {other:?}, neither true nor false")),
        }
    }
}

#[cfg(test)]
mod tests;
