//! Texts of actions with values from windows: `{{top(ingress.flags)}}`.

use cel::Value as CelValue;
use serde_json::{Map, Value};

use crate::expression::expression::Expression;
use crate::view::WindowView;
use twinprobe_ebpf_common::window::shape::WindowShape;

/// The windows that values are taken from.
pub type JudgedWindows<'a> = (&'a WindowView<'a>, Option<&'a WindowView<'a>>);

/// Checks each expression of the texts in a value; without the shape, only how it is written.
pub fn check(value: &Value, shape: Option<&WindowShape>) -> Result<(), String> {
    match value {
        Value::String(text) => fill_text(text, |expression| {
            let checked = Expression::check(expression, shape);
            checked.map_err(|fault| {
                format!("{{{{{expression}}}}}, column {}: {}", fault.column, fault.message)
            })?;
            Ok(Value::Null)
        })
        .map(drop),
        Value::Array(elements) => elements.iter().try_for_each(|element| check(element, shape)),
        Value::Object(members) => members.values().try_for_each(|member| check(member, shape)),
        _ => Ok(()),
    }
}

/// Returns the value with the expressions of its texts evaluated. A text that is one expression becomes what that is.
pub fn fill(value: &Value, shape: &WindowShape, windows: JudgedWindows<'_>) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => fill_text(text, |expression| {
            let compiled = Expression::value(expression, shape).map_err(|fault| fault.message)?;
            let found = compiled.evaluate(windows.0, windows.1)?;
            Ok(found.map_or(Value::Null, |found| json(&found)))
        })?,
        Value::Array(elements) => Value::Array(
            elements.iter().map(|element| fill(element, shape, windows)).collect::<Result<_, _>>()?,
        ),
        Value::Object(members) => {
            let filled =
                members.iter().map(|(name, member)| Ok((name.clone(), fill(member, shape, windows)?)));
            Value::Object(filled.collect::<Result<Map<_, _>, String>>()?)
        }
        other => other.clone(),
    })
}

fn fill_text(text: &str, mut value: impl FnMut(&str) -> Result<Value, String>) -> Result<Value, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (expression, after) =
            after.split_once("}}").ok_or_else(|| format!("{text:?} has {{{{ without }}}} behind it"))?;
        let found = value(expression)?;
        if before.is_empty() && after.is_empty() && filled.is_empty() {
            return Ok(found);
        }
        filled.push_str(before);
        match &found {
            Value::String(text) => filled.push_str(text),
            other => filled.push_str(&other.to_string()),
        }
        rest = after;
    }
    filled.push_str(rest);
    Ok(Value::String(filled))
}

/// Whole numbers have no point: they become keys and numbers of maps.
fn json(value: &CelValue) -> Value {
    /// Up to here a floating number tells whole ones apart.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        CelValue::Float(number) if number.fract() == 0.0 && number.abs() <= EXACT => {
            Value::from(*number as i64)
        }
        CelValue::Float(number) => Value::from(*number),
        CelValue::Bool(truth) => Value::from(*truth),
        CelValue::String(text) => Value::from(text.as_str()),
        _ => Value::Null,
    }
}
