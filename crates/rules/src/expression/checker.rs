//! The check of an expression against the metrics of a probe. Each value that the expression takes
//! from windows becomes a variable. All variables are asked for once, before the evaluation, so
//! their number bounds the cost.

use cel::common::ast::{
    CallExpr, Expr, IdedExpr, ListExpr, LiteralValue, SelectExpr, SourceInfo, operators,
};

use super::fault::ExpressionFault;
use super::function::metric_question;
use super::operators::{Operands, operator};
use super::path::{names_of, part_of_call, unknown, without_previous};
use super::reading::{Kind, Question, Reading, WindowFunction};
use twinprobe_ebpf_common::window::shape::WindowShape;

/// The most values that an expression may take from windows. Each value costs a walk over all
/// entries of a metric.
const MOST_QUESTIONS: usize = 16;
/// The deepest tree: its evaluation recurses for each level.
const DEEPEST: usize = 64;

/// The function that lets only finite numbers pass. Without it, the result of a division by 0 would
/// be larger than each limit.
pub const FINITE: &str = "finite";

type Checked = Result<(IdedExpr, Kind), ExpressionFault>;

/// Checks one expression.
pub struct Checker<'a> {
    text: &'a str,
    places: &'a SourceInfo,
    shape: &'a WindowShape,
    depth: usize,
    /// The depth of the tree so far.
    pub deepest: usize,
    pub readings: Vec<Reading>,
}

/// Returns the name of the variable for a value from windows. No expression can contain this name,
/// because all names are checked.
pub fn variable(question: usize) -> String {
    format!("answer{question}")
}

impl<'a> Checker<'a> {
    pub fn new(text: &'a str, places: &'a SourceInfo, shape: &'a WindowShape) -> Self {
        Self {
            text,
            places,
            shape,
            depth: 0,
            deepest: 0,
            readings: Vec::new(),
        }
    }

    /// Returns the expression over variables, and its type.
    pub fn check(&mut self, tree: &IdedExpr) -> Checked {
        if self.depth == DEEPEST {
            return Err(self.fault(
                tree,
                format!("the expression is nested more than {DEEPEST} deep"),
            ));
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        let checked = match &tree.expr {
            Expr::Literal(literal) => self.literal(tree, literal),
            Expr::Select(select) => self.select(tree, select),
            Expr::Call(call) => self.call(tree, call),
            Expr::Ident(name) => Err(self.fault(tree, unknown(name))),
            Expr::Comprehension(_) => Err(self.fault(
                tree,
                format!(
                    "macros are not possible in rules; {} go over the entries of a metric",
                    WindowFunction::NAMES
                ),
            )),
            _ => Err(self.fault(
                tree,
                "lists, maps and structures can stand only after `in`".to_owned(),
            )),
        };
        self.depth -= 1;
        checked
    }

    fn fault(&self, tree: &IdedExpr, message: String) -> ExpressionFault {
        let (start, _) = self.places.offset_for(tree.id).unwrap_or_default();
        ExpressionFault::at(self.text, start as usize, message)
    }

    /// All numbers are floating-point, so that `2 * window.seconds` is valid.
    fn literal(&self, tree: &IdedExpr, literal: &LiteralValue) -> Checked {
        let number = |value: f64| LiteralValue::Double(value.into());
        let (literal, kind) = match literal {
            LiteralValue::Boolean(_) => (literal.clone(), Kind::Boolean),
            LiteralValue::String(_) => (literal.clone(), Kind::Text),
            LiteralValue::Double(_) => (literal.clone(), Kind::Number),
            LiteralValue::Int(value) => (number(*value.inner() as f64), Kind::Number),
            LiteralValue::UInt(value) => (number(*value.inner() as f64), Kind::Number),
            LiteralValue::Bytes(_) | LiteralValue::Null => {
                return Err(self.fault(tree, "bytes and null are not possible in rules".to_owned()));
            }
        };
        Ok((
            IdedExpr {
                id: tree.id,
                expr: Expr::Literal(literal),
            },
            kind,
        ))
    }

    /// `window.seconds`, `previous.window.seconds`, or a part of a key:
    /// `top(ingress.flows).source`.
    fn select(&mut self, tree: &IdedExpr, select: &SelectExpr) -> Checked {
        if select.test {
            return Err(self.fault(
                tree,
                "rules have no `has`; numbers that a window lacks count as 0".to_owned(),
            ));
        }
        if let Some((call, part)) = part_of_call(tree) {
            return self.function(tree, call, part);
        }
        let path =
            names_of(tree).ok_or_else(|| self.fault(tree, "only names have fields".to_owned()))?;
        let (of_previous, path) = without_previous(&path);
        let (question, kind) = match path {
            ["window", "seconds"] => (Question::Seconds, Kind::Number),
            ["window", "seq"] => (Question::Number, Kind::Number),
            ["window", "lost_windows"] => (Question::Lost, Kind::Number),
            ["window", "approximate"] => (Question::Approximate, Kind::Boolean),
            ["window", ..] => {
                let message = "a window has seconds, seq, lost_windows and approximate";
                return Err(self.fault(tree, message.to_owned()));
            }
            ["ingress" | "egress", name, ..] => {
                let message = format!(
                    "{name} is a metric: take a number from it, by {}",
                    WindowFunction::NAMES
                );
                return Err(self.fault(tree, message));
            }
            _ => return Err(self.fault(tree, unknown(path.first().unwrap_or(&"previous")))),
        };
        self.ask(
            tree,
            Reading {
                of_previous,
                question,
            },
            kind,
        )
    }

    fn call(&mut self, tree: &IdedExpr, call: &CallExpr) -> Checked {
        if call.func_name == operators::CONDITIONAL {
            return self.conditional(tree, call);
        }
        if call.func_name == operators::IN {
            return self.is_in(tree, call);
        }
        if call.target.is_none() && WindowFunction::named(&call.func_name).is_some() {
            return self.function(tree, call, String::new());
        }
        let Some((sign, operands, result)) = operator(&call.func_name) else {
            let name = call.func_name.trim_matches('_');
            return Err(self.fault(
                tree,
                format!(
                    "{name:?} is not a function of rules; use {}",
                    WindowFunction::NAMES
                ),
            ));
        };
        let target = call
            .target
            .as_deref()
            .map(|target| self.check(target))
            .transpose()?;
        let arguments = call
            .args
            .iter()
            .map(|argument| self.check(argument))
            .collect::<Result<Vec<_>, _>>()?;
        let kinds: Vec<_> = arguments.iter().map(|(_, kind)| *kind).collect();
        if let Some(message) = operands.fault(sign, target.as_ref().map(|(_, kind)| *kind), &kinds)
        {
            return Err(self.fault(tree, message));
        }
        let is_comparison = matches!(operands, Operands::Ordered | Operands::Alike);
        let operand = |(operand, kind): (IdedExpr, Kind)| match kind {
            // Sums and products of large numbers may also be infinite.
            Kind::Number if is_comparison && matches!(operand.expr, Expr::Call(_)) => {
                finite(operand)
            }
            _ => operand,
        };
        let call = CallExpr {
            func_name: call.func_name.clone(),
            target: target.map(|(target, _)| Box::new(target)),
            args: arguments.into_iter().map(operand).collect(),
        };
        let is_division = call.func_name == operators::DIVIDE;
        let (id, expr) = (tree.id, Expr::Call(call));
        let call = IdedExpr { id, expr };
        Ok((if is_division { finite(call) } else { call }, result))
    }

    fn conditional(&mut self, tree: &IdedExpr, call: &CallExpr) -> Checked {
        let [condition, yes, no] = &*call.args else {
            return Err(self.fault(tree, "? takes a condition and two values".to_owned()));
        };
        let ((condition, kind), (yes, kind_of_yes), (no, kind_of_no)) =
            (self.check(condition)?, self.check(yes)?, self.check(no)?);
        if kind != Kind::Boolean || kind_of_yes != kind_of_no {
            return Err(self.fault(
                tree,
                "? takes true or false, and two values of one kind".to_owned(),
            ));
        }
        let call = CallExpr {
            func_name: call.func_name.clone(),
            target: None,
            args: vec![condition, yes, no],
        };
        Ok((
            IdedExpr {
                id: tree.id,
                expr: Expr::Call(call),
            },
            kind_of_yes,
        ))
    }

    fn is_in(&mut self, tree: &IdedExpr, call: &CallExpr) -> Checked {
        let [
            element,
            IdedExpr {
                id,
                expr: Expr::List(list),
            },
        ] = &*call.args
        else {
            return Err(self.fault(
                tree,
                "`in` takes a value and a list of values: x in ['a', 'b']".to_owned(),
            ));
        };
        let (element, kind) = self.check(element)?;
        let elements = list
            .elements
            .iter()
            .map(|element| self.check(element))
            .collect::<Result<Vec<_>, _>>()?;
        if elements.iter().any(|(_, other)| *other != kind) {
            return Err(self.fault(
                tree,
                format!("`in` looks for {}: the list has others", kind.name()),
            ));
        }
        let elements = ListExpr::new(elements.into_iter().map(|(element, _)| element).collect());
        let list = IdedExpr {
            id: *id,
            expr: Expr::List(elements),
        };
        let call = CallExpr {
            func_name: call.func_name.clone(),
            target: None,
            args: vec![element, list],
        };
        Ok((
            IdedExpr {
                id: tree.id,
                expr: Expr::Call(call),
            },
            Kind::Boolean,
        ))
    }

    /// Checks `FUNCTION(DIRECTION.METRIC)`. `part` is the path of a part of the key, or empty.
    fn function(&mut self, tree: &IdedExpr, call: &CallExpr, part: String) -> Checked {
        let (of_previous, question) = metric_question(self.shape, tree, call, part)
            .map_err(|(place, message)| self.fault(place, message))?;
        let is_rate = question.function == WindowFunction::Rate;
        let kind = if question.function == WindowFunction::Top {
            Kind::Text
        } else {
            Kind::Number
        };
        let question = Question::Metric(question);
        let reading = Reading {
            of_previous,
            question,
        };
        let (asked, kind) = self.ask(tree, reading, kind)?;
        // A window may have no length.
        Ok((if is_rate { finite(asked) } else { asked }, kind))
    }

    fn ask(&mut self, tree: &IdedExpr, reading: Reading, kind: Kind) -> Checked {
        let known = self.readings.iter().position(|known| *known == reading);
        let place = known.unwrap_or(self.readings.len());
        if place == MOST_QUESTIONS {
            let message =
                format!("the expression asks for more than {MOST_QUESTIONS} numbers of windows");
            return Err(self.fault(tree, message));
        }
        if known.is_none() {
            self.readings.push(reading);
        }
        Ok((
            IdedExpr {
                id: tree.id,
                expr: Expr::Ident(variable(place)),
            },
            kind,
        ))
    }
}

fn finite(number: IdedExpr) -> IdedExpr {
    let id = number.id;
    let call = CallExpr {
        func_name: FINITE.to_owned(),
        target: None,
        args: vec![number],
    };
    IdedExpr {
        id,
        expr: Expr::Call(call),
    }
}
