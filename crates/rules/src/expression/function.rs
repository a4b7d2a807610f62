//! The check of a function over the entries of a metric: `sum(ingress.flows, 'port=53', 'bytes')`.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::window::shape::{MetricShape, WindowShape};

use super::path::{names_of, unknown, without_previous};
use super::reading::{MetricQuestion, Selector, WindowFunction};
use crate::fields;

/// The part of the expression that contains a mistake, and the message about the mistake.
type FunctionFault<'t> = (&'t IdedExpr, String);
/// The part of the expression that is a text, and the text.
type CallText<'t> = (&'t IdedExpr, &'t str);
/// The texts after the metric, two at most.
type CallTexts<'t> = (Option<CallText<'t>>, Option<CallText<'t>>);

/// Returns the question that `FUNCTION(DIRECTION.METRIC)` asks, and before it true if it is about
/// the previous window. Two texts may follow the metric: the choice of entries, and the path
/// of their number.
pub fn metric_question<'t>(
    shape: &WindowShape,
    tree: &'t IdedExpr,
    call: &'t CallExpr,
    part: String,
) -> Result<(bool, MetricQuestion), FunctionFault<'t>> {
    let name = &call.func_name;
    let function = WindowFunction::named(name).ok_or_else(|| (tree, unknown(name)))?;
    if !part.is_empty() && function != WindowFunction::Top {
        return Err((tree, format!("{name} is a number, which has no fields")));
    }
    let arguments = call.args.split_first();
    let (metric, texts) = arguments.ok_or_else(|| (tree, usage(name)))?;
    let (of_previous, direction, metric_name) =
        metric_named(metric).ok_or_else(|| (metric, usage(name)))?;
    let shape = fields::metric(shape, direction, metric_name);
    let shape = shape.map_err(|message| (metric, message))?;
    fields::check_part(shape, &part).map_err(|message| (tree, message))?;
    check_metric(function, name, shape).map_err(|message| (metric, message))?;
    let texts = texts_of(texts).map_err(|place| (place, usage(name)))?;
    if let (WindowFunction::Percentile(_), Some((place, _))) = (function, texts.0) {
        let message = format!("{name} takes no selector: it always counts all entries");
        return Err((place, message));
    }
    let (selector, field) = selector_and_field(shape, texts)?;
    let question = MetricQuestion {
        function,
        direction,
        metric: metric_name.to_owned(),
        selector,
        field,
        part,
    };
    Ok((of_previous, question))
}

/// Returns the form of the calls of a function, for messages.
fn usage(name: &str) -> String {
    format!("{name} takes a metric, as {name}(ingress.NAME), then a key or a field as texts")
}

/// Returns the direction and the name of a metric, and before them true if the metric belongs to
/// the previous window.
fn metric_named(tree: &IdedExpr) -> Option<(bool, Direction, &str)> {
    let path = names_of(tree)?;
    let (of_previous, path) = without_previous(&path);
    let [direction, name] = path else {
        return None;
    };
    let direction = Direction::ALL
        .into_iter()
        .find(|known| known.name() == *direction)?;
    Some((of_previous, direction, *name))
}

/// Refuses a metric without the numbers that the function needs.
fn check_metric(function: WindowFunction, name: &str, shape: &MetricShape) -> Result<(), String> {
    let metric = &shape.name;
    if fields::numbers(shape).is_empty() && function.needs_number() {
        return Err(format!(
            "the entries of {metric} have no number; {name} needs one"
        ));
    }
    if matches!(function, WindowFunction::Percentile(_)) && !shape.histogram {
        return Err(format!(
            "{metric} is not a histogram: it has no percentiles"
        ));
    }
    Ok(())
}

/// Returns the texts after the metric. The error is the first argument that is not a text, or else
/// the third one.
fn texts_of(arguments: &[IdedExpr]) -> Result<CallTexts<'_>, &IdedExpr> {
    let mut texts = arguments.iter().map(|argument| match &argument.expr {
        Expr::Literal(LiteralValue::String(value)) => Ok((argument, value.inner())),
        _ => Err(argument),
    });
    let texts = (texts.next().transpose()?, texts.next().transpose()?);
    match arguments.get(2) {
        Some(third) => Err(third),
        None => Ok(texts),
    }
}

/// Returns the choice of entries, and the path of their number. A text alone is the path if the
/// entries have a number there, or else the choice.
fn selector_and_field<'t>(
    shape: &MetricShape,
    (first, second): CallTexts<'t>,
) -> Result<(Option<Selector>, String), FunctionFault<'t>> {
    let numbers = fields::numbers(shape);
    let is_field = |name: &str| numbers.iter().any(|field| field == name);
    let key = first.filter(|(_, text)| second.is_some() || !is_field(text));
    let selector =
        key.map(|(place, text)| fields::selector(shape, text).map_err(|message| (place, message)));
    let selector = selector.transpose()?;
    if let Some((place, name)) = second
        && !is_field(name)
    {
        let (metric, known) = (&shape.name, numbers.join(", "));
        let message = format!("{metric} has no field {name:?}; it has {known}");
        return Err((place, message));
    }
    let field = if key.is_some() { second } else { first }.map(|(_, text)| text.to_owned());
    let field = field.or_else(|| numbers.into_iter().next());
    Ok((selector, field.unwrap_or_default()))
}
