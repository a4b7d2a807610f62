//! `api/openapi.yaml`, and how its schemas are said in words.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

pub struct Schema(Value);

impl Schema {
    pub fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/openapi.yaml");
        let text = fs::read_to_string(&path).context(path.display().to_string())?;
        Ok(Self(yaml_serde::from_str(&text)?))
    }

    /// Returns the value at a JSON pointer.
    pub fn at(&self, pointer: &str) -> Result<&Value> {
        self.0
            .pointer(pointer)
            .with_context(|| format!("openapi.yaml has no {pointer}"))
    }

    /// Returns a value, or the target of its `$ref` together with the fields beside the reference.
    pub fn resolved(&self, value: &Value) -> Result<Map<String, Value>> {
        let mut map = value.as_object().context("a schema is an object")?.clone();
        if let Some(reference) = map.remove("$ref") {
            let target = self.at(reference
                .as_str()
                .and_then(|text| text.strip_prefix('#'))
                .context("a reference")?)?;
            for (key, value) in self.resolved(target)? {
                map.entry(key).or_insert(value);
            }
        }
        Ok(map)
    }

    /// Describes the valid values of a schema. An object with fields is named by its title in
    /// `sections`.
    pub fn shape(&self, value: &Value, sections: &[(&str, &str)]) -> Result<String> {
        if let Some(name) = value
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|text| text.rsplit('/').next())
            && let Some((_, title)) = sections.iter().find(|(schema, _)| *schema == name)
        {
            return Ok(format!("[object](#{})", anchor(title)));
        }
        let schema = self.resolved(value)?;
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let words: Vec<String> = values
                .iter()
                .map(|value| format!("`{}`", plain(value)))
                .collect();
            return Ok(words.join(", "));
        }
        if let Some(choices) = schema
            .get("oneOf")
            .or(schema.get("anyOf"))
            .and_then(Value::as_array)
            && !schema.contains_key("properties")
        {
            let words: Result<Vec<_>> = choices
                .iter()
                .map(|choice| self.shape(choice, sections))
                .collect();
            return Ok(words?.join(", or "));
        }
        let kind = match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().map(plain).collect::<Vec<_>>().join(" or "),
            Some(kind) => plain(kind),
            None => "any value".to_owned(),
        };
        Ok(match kind.as_str() {
            "array" => {
                let items = schema.get("items").context("a list has items")?;
                format!("list of {}", self.shape(items, sections)?)
            }
            "object" => match schema.get("additionalProperties") {
                Some(values @ Value::Object(_)) => {
                    format!("object of {}", self.shape(values, sections)?)
                }
                _ => kind,
            },
            _ => kind + &bounds(&schema),
        })
    }
}

fn bounds(schema: &Map<String, Value>) -> String {
    let number = |name: &str| {
        schema
            .get(name)
            .filter(|bound| bound.as_u64() != Some(u64::MAX))
            .map(plain)
    };
    let mut text = match (number("minimum"), number("maximum")) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (Some(least), None) => format!(", at least {least}"),
        (None, Some(most)) => format!(", at most {most}"),
        (None, None) => String::new(),
    };
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        text.push_str(&format!(", `{pattern}`"));
    }
    if let Some(length) = number("maxLength") {
        text.push_str(&format!(", at most {length} characters"));
    }
    text
}

/// Returns a string unchanged, other values as JSON.
pub fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a text as a cell of a table.
pub fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// Returns the anchor of a heading.
pub fn anchor(title: &str) -> String {
    let kept = title.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}
