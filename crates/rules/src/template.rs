//! Texts of actions with values from windows: `{{top(ingress.flags)}}`.

use std::collections::BTreeMap;

use cel::Value as CelValue;
use serde_json::{Map, Value};

use crate::expression::expression::Expression;
use crate::view::WindowView;
use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::window::shape::WindowShape;

/// The windows that values are taken from.
pub type JudgedWindows<'a> = (&'a WindowView<'a>, Option<&'a WindowView<'a>>);

/// Configurations that rules deploy, by the names of their templates.
pub type Templates = BTreeMap<String, ConfigDocument>;

/// The types that the texts of an action are converted to.
#[derive(Clone, Copy)]
enum TemplateTexts {
    /// Texts below an unknown field get the type of their value.
    Any,
    /// Values of variables and entries of maps: a text with just one expression gets the type of its value.
    Values,
    /// Texts stay texts, with values of any type in them.
    Plain,
    /// Programs: they may have braces of their own.
    Programs,
}

impl TemplateTexts {
    /// Returns the type for the texts below a member.
    fn below(self, member: &str) -> Self {
        match (self, member) {
            (Self::Any, "variables" | "fill" | "sample") => Self::Values,
            (Self::Any, "defines" | "labels" | "name" | "probe" | "template" | "expires") => Self::Plain,
            (Self::Any, "notify" | "delete" | "mark") => Self::Plain,
            (Self::Any, "source" | "object" | "files") => Self::Programs,
            (known, _) => known,
        }
    }
}

/// Checks each expression of the texts in a value; without the shape, only its syntax.
pub fn check(value: &Value, shape: Option<&WindowShape>) -> Result<(), String> {
    let checked = |expression: &str| {
        let checked = Expression::check(expression, shape);
        checked
            .map_err(|fault| format!("{{{{{expression}}}}}, column {}: {}", fault.column, fault.message))?;
        Ok(Value::Null)
    };
    map_texts(value, TemplateTexts::Any, &checked).map(drop)
}

/// Checks a template: its expressions, and their places.
pub fn check_template(config: &ConfigDocument, shape: Option<&WindowShape>) -> Result<(), String> {
    let mut rest = config.clone();
    rest.forget_sources();
    let value = serde_json::to_value(&rest).map_err(|error| error.to_string())?;
    check(&value, shape)?;
    (rest.fill, rest.labels) = (None, None);
    for direction in [&mut rest.ingress, &mut rest.egress].into_iter().flatten() {
        (direction.variables, direction.defines) = (None, None);
    }
    match serde_json::to_string(&rest) {
        Ok(text) if text.contains("{{") => {
            Err("{{...}} may stand in variables, fill, defines and labels only".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the value with the expressions of its texts evaluated. A text with just one expression gets the type of its
/// value, except where only texts are valid.
pub fn fill(value: &Value, shape: &WindowShape, windows: JudgedWindows<'_>) -> Result<Value, String> {
    let found = |expression: &str| {
        let compiled = Expression::value(expression, shape).map_err(|fault| fault.message)?;
        let found = compiled.evaluate(windows.0, windows.1)?;
        Ok(found.map_or(Value::Null, |found| json(&found)))
    };
    map_texts(value, TemplateTexts::Any, &found)
}

fn map_texts(
    value: &Value,
    texts: TemplateTexts,
    found: &impl Fn(&str) -> Result<Value, String>,
) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => match texts {
            TemplateTexts::Programs => value.clone(),
            TemplateTexts::Any | TemplateTexts::Values => fill_text(text, found)?,
            TemplateTexts::Plain => match fill_text(text, found)? {
                Value::String(text) => Value::String(text),
                Value::Null => Value::String(String::new()),
                other => Value::String(other.to_string()),
            },
        },
        Value::Array(elements) => Value::Array(
            elements.iter().map(|element| map_texts(element, texts, found)).collect::<Result<_, _>>()?,
        ),
        Value::Object(members) => {
            let filled = members
                .iter()
                .map(|(name, member)| Ok((name.clone(), map_texts(member, texts.below(name), found)?)));
            Value::Object(filled.collect::<Result<Map<_, _>, String>>()?)
        }
        other => other.clone(),
    })
}

fn fill_text(text: &str, value: impl Fn(&str) -> Result<Value, String>) -> Result<Value, String> {
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
    /// The largest number below which floating numbers tell whole ones apart.
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
