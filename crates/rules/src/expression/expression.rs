//! An expression that was checked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cel::common::ast::IdedExpr;
use cel::{Context, ExecutionError, Value};

use super::budget::ExpressionBudget;
use super::checker::{Checker, FINITE, variable};
use super::fault::ExpressionFault;
use super::parse::{on_large_stack, parse};
use super::reading::{Kind, Reading};
use crate::view::WindowView;
use twinprobe_ebpf_common::window::shape::WindowShape;

/// An expression over windows of one shape.
#[derive(Clone, Debug)]
pub struct Expression {
    tree: IdedExpr,
    readings: Vec<Reading>,
    kind: Kind,
    depth: usize,
}

/// The depth of a tree from which on its evaluation gets a large stack.
const DEEP: usize = 16;

/// The reason why an expression has no value in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// The expression needs the previous window, which is missing.
    Previous,
    /// The expression divides by 0, or a number in it is too large.
    Number,
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Previous => "the window before is missing",
            Self::Number => "it divides by 0, or a number in it is too large",
        })
    }
}

impl Expression {
    /// Returns the type of the value.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Parses and checks a condition.
    pub fn condition(
        text: &str,
        shape: &WindowShape,
        budget: &mut ExpressionBudget,
    ) -> Result<Self, ExpressionFault> {
        budget.count()?;
        let expression = Self::value(text, shape)?;
        budget.read(expression.readings.len())?;
        match expression.kind {
            Kind::Boolean => Ok(expression),
            other => {
                let message = format!(
                    "a condition is true or false, and this is {}: compare it",
                    other.name()
                );
                Err(ExpressionFault::at_start(message))
            }
        }
    }

    /// Parses an expression. With the shape of the windows, this also checks its names and types.
    pub fn check(
        text: &str,
        shape: Option<&WindowShape>,
        budget: &mut ExpressionBudget,
    ) -> Result<(), ExpressionFault> {
        budget.count()?;
        match shape {
            Some(shape) => budget.read(Self::value(text, shape)?.readings.len()),
            None => parse(text, |_, _| Ok(())),
        }
    }

    /// Parses and checks an expression of any kind.
    pub fn value(text: &str, shape: &WindowShape) -> Result<Self, ExpressionFault> {
        parse(text, |tree, places| {
            let mut checker = Checker::new(text, places, shape);
            let (tree, kind) = checker.check(tree)?;
            Ok(Self {
                tree,
                readings: checker.readings,
                kind,
                depth: checker.deepest,
            })
        })
    }

    /// Evaluates the expression.
    pub fn evaluate(
        &self,
        window: &WindowView<'_>,
        previous: Option<&WindowView<'_>>,
    ) -> Result<Result<Value, NoValue>, String> {
        match self.depth < DEEP {
            true => self.resolve(window, previous),
            false => on_large_stack(|| self.resolve(window, previous))?,
        }
    }

    fn resolve(
        &self,
        window: &WindowView<'_>,
        previous: Option<&WindowView<'_>>,
    ) -> Result<Result<Value, NoValue>, String> {
        let mut context = Context::default();
        for (index, reading) in self.readings.iter().enumerate() {
            let asked = if reading.of_previous {
                previous
            } else {
                Some(window)
            };
            let Some(asked) = asked else {
                return Ok(Err(NoValue::Previous));
            };
            context.add_variable_from_value(variable(index), reading.question.ask(asked));
        }
        let is_infinite = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_infinite);
        let finite = move |number: f64| {
            if number.is_finite() {
                return Ok(number);
            }
            seen.store(true, Ordering::Relaxed);
            Err(ExecutionError::function_error(FINITE, NoValue::Number))
        };
        context
            .add_function(FINITE, finite)
            .map_err(|error| error.to_string())?;
        match Value::resolve(&self.tree, &context) {
            Ok(Value::Float(number)) if !number.is_finite() => Ok(Err(NoValue::Number)),
            Ok(value) => Ok(Ok(value)),
            Err(_) if is_infinite.load(Ordering::Relaxed) => Ok(Err(NoValue::Number)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Tells whether a condition holds, or why it has no value.
    pub fn holds(
        &self,
        window: &WindowView<'_>,
        previous: Option<&WindowView<'_>>,
    ) -> Result<Result<bool, NoValue>, String> {
        match self.evaluate(window, previous)? {
            Err(missing) => Ok(Err(missing)),
            Ok(Value::Bool(holds)) => Ok(Ok(holds)),
            Ok(other) => Err(format!(
                "the condition is {other:?}, neither true nor false"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
