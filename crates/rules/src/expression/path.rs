//! The paths of names in an expression.

use cel::common::ast::{CallExpr, Expr, IdedExpr};

use super::reading::WindowFunction;

/// Returns the message about a name that rules do not have.
pub fn unknown(name: &str) -> String {
    format!(
        "{name:?} is not known; there are window, ingress, egress, previous and the functions {}",
        WindowFunction::NAMES
    )
}

/// Returns the names of `a.b.c`.
pub fn names_of(tree: &IdedExpr) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut tree = tree;
    loop {
        match &tree.expr {
            Expr::Ident(name) => {
                names.push(&**name);
                names.reverse();
                return Some(names);
            }
            Expr::Select(select) if !select.test => {
                names.push(&*select.field);
                tree = &select.operand;
            }
            _ => return None,
        }
    }
}

/// Returns the call of `call(...).a.b`, and `a.b`.
pub fn part_of_call(tree: &IdedExpr) -> Option<(&CallExpr, String)> {
    let mut names = Vec::new();
    let mut tree = tree;
    loop {
        match &tree.expr {
            Expr::Call(call)
                if call.target.is_none() && WindowFunction::named(&call.func_name).is_some() =>
            {
                names.reverse();
                return Some((call, names.join(".")));
            }
            Expr::Select(select) if !select.test => {
                names.push(&*select.field);
                tree = &select.operand;
            }
            _ => return None,
        }
    }
}

/// Tells whether a path begins with `previous`, and returns the path after it.
pub fn without_previous<'p, 'a>(path: &'p [&'a str]) -> (bool, &'p [&'a str]) {
    match path {
        ["previous", rest @ ..] => (true, rest),
        path => (false, path),
    }
}
