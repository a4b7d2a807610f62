//! Texts of actions with values from windows: `{{top(ingress.flags)}}`.

use std::collections::BTreeMap;

use cel::Value as CelValue;
use serde_json::{Map, Value};

use crate::expression::budget::ExpressionBudget;
use crate::expression::expression::Expression;
use crate::view::WindowView;
use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::window::shape::WindowShape;

/// The windows from which a rule takes values.
pub type JudgedWindows<'a> = (&'a WindowView<'a>, Option<&'a WindowView<'a>>);

/// Configurations that rules deploy, by the names of their templates.
pub type Templates = BTreeMap<String, ConfigDocument>;

/// The types that the texts of an action are converted to.
#[derive(Clone, Copy)]
enum TemplateTexts {
    /// Texts below an unknown field get the type of their value.
    Any,
    /// In values of variables and entries of maps, a text with just one expression gets the type of
    /// its value.
    Values,
    /// Texts stay texts, with values of any type in them.
    Plain,
    /// The values in them become arguments of the compiler or names of files: they are numbers or
    /// words.
    Words,
    /// The values in them are percent-encoded.
    Urls,
    /// Programs may have braces of their own.
    Programs,
}

impl TemplateTexts {
    /// Returns the type for the texts below a member.
    fn below(self, member: &str) -> Self {
        match (self, member) {
            (Self::Any, "variables" | "fill" | "sample") => Self::Values,
            (Self::Any, "labels" | "name" | "probe" | "template" | "expires") => Self::Plain,
            (Self::Any, "delete" | "mark") => Self::Plain,
            (Self::Any, "defines" | "netns") => Self::Words,
            (Self::Any, "notify") => Self::Urls,
            (Self::Any, "source" | "object" | "files") => Self::Programs,
            (known, _) => known,
        }
    }

    /// Returns the value of an expression as these texts may have it. Packets may choose the texts
    /// in windows.
    fn admit(self, value: Value) -> Result<Value, String> {
        match (self, value) {
            (Self::Words, Value::String(text)) if !is_word(&text) => Err(
                "a value from a window may have only letters, digits and _.:-, 1 to 64 of them"
                    .to_owned(),
            ),
            (Self::Urls, Value::String(text)) => Ok(encoded(&text).into()),
            (_, value) => Ok(value),
        }
    }
}

fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
}

/// Returns a text in a form that is valid in any part of a URL.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'_' | b'.' | b'-' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Checks each expression of the texts in a value; without a shape, only its syntax. The mistake
/// has its field below the value.
pub fn check(
    value: &Value,
    shape: Option<&WindowShape>,
    budget: &mut ExpressionBudget,
) -> Result<(), Finding> {
    let mut checked = |expression: &str| {
        let checked = Expression::check(expression, shape, budget);
        checked.map_err(|fault| {
            format!(
                "{{{{{expression}}}}}, column {}: {}",
                fault.column, fault.message
            )
        })?;
        Ok(Value::Null)
    };
    map_texts(value, TemplateTexts::Any, &mut checked).map(drop)
}

/// Checks a template: its expressions, and their places.
pub fn check_template(config: &ConfigDocument, shape: Option<&WindowShape>) -> Result<(), Finding> {
    let json = |config: &ConfigDocument| {
        serde_json::to_value(config).map_err(|error| Finding::config("", error.to_string()))
    };
    let mut rest = config.clone();
    rest.forget_sources();
    check(&json(&rest)?, shape, &mut ExpressionBudget::default())?;
    (rest.fill, rest.labels) = (None, None);
    for direction in [&mut rest.ingress, &mut rest.egress].into_iter().flatten() {
        (direction.variables, direction.defines) = (None, None);
    }
    let mut refused =
        |_: &str| Err("{{...}} may stand in variables, fill, defines and labels only".to_owned());
    map_texts(&json(&rest)?, TemplateTexts::Any, &mut refused).map(drop)
}

/// Returns the value with evaluated expressions in its texts. A text with just one expression gets
/// the type of its value, except where only texts are valid.
pub fn fill(
    value: &Value,
    shape: &WindowShape,
    windows: JudgedWindows<'_>,
) -> Result<Value, String> {
    let mut found = |expression: &str| {
        let compiled = Expression::value(expression, shape).map_err(|fault| fault.message)?;
        let found = compiled.evaluate(windows.0, windows.1)?;
        Ok(found.map_or(Value::Null, |found| json(&found)))
    };
    let filled = map_texts(value, TemplateTexts::Any, &mut found);
    filled.map_err(|finding| format!("{}: {}", finding.field.unwrap_or_default(), finding.message))
}

fn map_texts(
    value: &Value,
    texts: TemplateTexts,
    found: &mut impl FnMut(&str) -> Result<Value, String>,
) -> Result<Value, Finding> {
    Ok(match value {
        Value::String(text) if !matches!(texts, TemplateTexts::Programs) => {
            let filled = fill_text(text, |expression| texts.admit(found(expression)?));
            let filled = filled.map_err(|message| Finding::config("", message))?;
            match (texts, filled) {
                (_, Value::String(text)) => Value::String(text),
                (TemplateTexts::Any | TemplateTexts::Values, other) => other,
                (_, Value::Null) => Value::String(String::new()),
                (_, other) => Value::String(other.to_string()),
            }
        }
        Value::Array(elements) => {
            let filled = elements.iter().enumerate().map(|(index, element)| {
                map_texts(element, texts, found)
                    .map_err(|finding| below(&format!("[{index}]"), finding))
            });
            Value::Array(filled.collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let filled = members.iter().map(|(name, member)| {
                let filled = map_texts(member, texts.below(name), found);
                Ok((
                    name.clone(),
                    filled.map_err(|finding| below(name, finding))?,
                ))
            });
            Value::Object(filled.collect::<Result<Map<_, _>, Finding>>()?)
        }
        other => other.clone(),
    })
}

/// Returns the finding with the path `field` before the path of its own field.
pub fn below(field: &str, mut finding: Finding) -> Finding {
    let inner = finding.field.take().unwrap_or_default();
    let dot = if inner.is_empty() || inner.starts_with('[') {
        ""
    } else {
        "."
    };
    finding.field = Some(format!("{field}{dot}{inner}"));
    finding
}

fn fill_text(
    text: &str,
    mut value: impl FnMut(&str) -> Result<Value, String>,
) -> Result<Value, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (expression, after) = after
            .split_once("}}")
            .ok_or_else(|| format!("{text:?} has {{{{ without }}}} after it"))?;
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

/// Returns the expression of a text that has just one expression.
pub fn only_expression(text: &str) -> Option<&str> {
    let expression = text.strip_prefix("{{")?.strip_suffix("}}")?;
    (!expression.contains("{{") && !expression.contains("}}")).then_some(expression)
}

/// Whole numbers have no point, because they become keys and numbers of maps.
fn json(value: &CelValue) -> Value {
    /// The limit below which floating numbers distinguish whole numbers.
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
