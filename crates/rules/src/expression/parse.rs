//! The parsing of CEL. The parser bounds neither the depth of a tree nor the stack that it takes,
//! so the text is short and the stack is large. The evaluation of a deep tree needs such a stack as
//! well.

use std::thread;

use cel::common::ast::{IdedExpr, SourceInfo};
use cel::{ParseErrors, Program};

use super::fault::ExpressionFault;

/// The longest text, in bytes.
const LONGEST: usize = 1024;
/// A hundred times the stack that the parser needs for the deepest expression of [`LONGEST`] bytes.
const STACK: usize = 64 << 20;

/// Parses a text, and calls `visit` with its tree on a large stack. The tree is also dropped there.
pub fn parse<T: Send>(
    text: &str,
    visit: impl FnOnce(&IdedExpr, &SourceInfo) -> Result<T, ExpressionFault> + Send,
) -> Result<T, ExpressionFault> {
    if text.len() > LONGEST {
        let message = format!(
            "the expression has {} bytes; the limit is {LONGEST}",
            text.len()
        );
        return Err(ExpressionFault::at_start(message));
    }
    if text.trim().is_empty() {
        return Err(ExpressionFault::at_start("the expression is empty"));
    }
    let parsed = || {
        let program = Program::compile(text).map_err(|errors| first(text, &errors))?;
        visit(program.expression(), program.source_info())
    };
    on_large_stack(parsed).unwrap_or_else(|message| Err(ExpressionFault::at_start(message)))
}

/// Does the work on a thread with a large stack.
pub fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("cel".into())
            .stack_size(STACK)
            .spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("no thread for the expression: {error}"))?;
        thread
            .join()
            .map_err(|_| "CEL failed on this expression".to_owned())
    })
}

fn first(text: &str, errors: &ParseErrors) -> ExpressionFault {
    let Some(error) = errors.errors.first() else {
        return ExpressionFault::at_start(format!("{text:?} is not an expression in CEL"));
    };
    let number = |place: isize| u32::try_from(place).unwrap_or(1).max(1);
    let message = match error.msg.contains("Recursion limit") {
        true => "the expression is too deeply nested; the limit is 96 levels".to_owned(),
        false => error.msg.clone(),
    };
    ExpressionFault {
        line: number(error.pos.0),
        column: number(error.pos.1),
        message,
    }
}
