//! The check of an expression against the metrics of a probe. Each value that the expression takes
//! from windows becomes a variable. All variables are asked for once, before the evaluation, so
//! their number bounds the cost.

use cel::common::ast::{
    CallExpr, Expr, IdedExpr, ListExpr, LiteralValue, SelectExpr, SourceInfo, operators,
};
use twinprobe_ebpf_common::Direction;

use super::fault::ExpressionFault;
use super::operators::{Operands, operator};
use super::reading::{Kind, MetricQuestion, Question, Reading, WindowFunction};
use crate::fields;
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
        let checked = IdedExpr {
            id: tree.id,
            expr: Expr::Call(call),
        };
        Ok((
            if is_division {
                finite(checked)
            } else {
                checked
            },
            result,
        ))
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

    /// Checks `FUNCTION(DIRECTION.METRIC)`. Two texts may follow the metric: the choice of entries,
    /// and the path of their number.
    fn function(&mut self, tree: &IdedExpr, call: &CallExpr, part: String) -> Checked {
        let name = &call.func_name;
        let function =
            WindowFunction::named(name).ok_or_else(|| self.fault(tree, unknown(name)))?;
        if !part.is_empty() && function != WindowFunction::Top {
            return Err(self.fault(tree, format!("{name} is a number, which has no fields")));
        }
        let how = || {
            format!(
                "{name} takes a metric, as {name}(ingress.NAME), then a key or a field as texts"
            )
        };
        let (metric, texts) = call
            .args
            .split_first()
            .ok_or_else(|| self.fault(tree, how()))?;
        let path = names_of(metric).ok_or_else(|| self.fault(metric, how()))?;
        let (of_previous, path) = without_previous(&path);
        let [direction, metric_name] = path else {
            return Err(self.fault(metric, how()));
        };
        let direction = Direction::ALL
            .into_iter()
            .find(|known| known.name() == *direction);
        let direction = direction.ok_or_else(|| self.fault(metric, how()))?;
        let shape = fields::metric(self.shape, direction, metric_name);
        let shape = shape.map_err(|message| self.fault(metric, message))?;
        fields::check_part(shape, &part).map_err(|message| self.fault(tree, message))?;
        let numbers = fields::numbers(shape);
        if numbers.is_empty() && function.needs_number() {
            let message = format!("the entries of {metric_name} have no number; {name} needs one");
            return Err(self.fault(metric, message));
        }
        if matches!(function, WindowFunction::Percentile(_)) && !shape.histogram {
            return Err(self.fault(
                metric,
                format!("{metric_name} is not a histogram: it has no percentiles"),
            ));
        }
        let mut texts = texts.iter().map(|text| match &text.expr {
            Expr::Literal(LiteralValue::String(value)) => Ok((text, value.inner())),
            _ => Err(self.fault(text, how())),
        });
        let (first, second) = (texts.next().transpose()?, texts.next().transpose()?);
        if let Some(third) = texts.next().transpose()? {
            return Err(self.fault(third.0, how()));
        }
        if let (WindowFunction::Percentile(_), Some((place, _))) = (function, first) {
            return Err(self.fault(
                place,
                format!("{name} takes no selector: it always counts all entries"),
            ));
        }
        let is_field = |name: &str| numbers.iter().any(|field| field == name);
        let key = first.filter(|(_, text)| second.is_some() || !is_field(text));
        let selector = key.map(|(place, text)| {
            fields::selector(shape, text).map_err(|message| self.fault(place, message))
        });
        let selector = selector.transpose()?;
        let field = if key.is_some() { second } else { first }.map(|(_, text)| text.to_owned());
        if let Some((place, name)) = second
            && !is_field(name)
        {
            let message = format!(
                "{metric_name} has no field {name:?}; it has {}",
                numbers.join(", ")
            );
            return Err(self.fault(place, message));
        }
        let field = field
            .or_else(|| numbers.into_iter().next())
            .unwrap_or_default();
        let kind = if function == WindowFunction::Top {
            Kind::Text
        } else {
            Kind::Number
        };
        let metric = (*metric_name).to_owned();
        let question = MetricQuestion {
            function,
            direction,
            metric,
            selector,
            field,
            part,
        };
        let (asked, kind) = self.ask(
            tree,
            Reading {
                of_previous,
                question: Question::Metric(question),
            },
            kind,
        )?;
        // A window may have no length.
        Ok((
            if function == WindowFunction::Rate {
                finite(asked)
            } else {
                asked
            },
            kind,
        ))
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

fn unknown(name: &str) -> String {
    format!(
        "{name:?} is not known; there are window, ingress, egress, previous and the functions {}",
        WindowFunction::NAMES
    )
}

/// Returns the names of `a.b.c`.
fn names_of(tree: &IdedExpr) -> Option<Vec<&str>> {
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
fn part_of_call(tree: &IdedExpr) -> Option<(&CallExpr, String)> {
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

fn without_previous<'p, 'a>(path: &'p [&'a str]) -> (bool, &'p [&'a str]) {
    match path {
        ["previous", rest @ ..] => (true, rest),
        path => (false, path),
    }
}
