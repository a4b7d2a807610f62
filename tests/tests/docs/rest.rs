//! `docs/reference/rest.md`: every request, from the schema.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use crate::schema::{Schema, cell, plain};

const HEAD: &str = "# Reference: REST

<!-- written by `make reference` from api/openapi.yaml -->

Every request, as [`api/openapi.yaml`](../../api/openapi.yaml) describes it; a daemon serves that file at `/openapi.yaml`. Each
request needs a [role](../operations.md#who-may-do-what). Errors are problem documents (RFC 9457): [how mistakes are
reported](../configuration.md#how-mistakes-are-reported).
";

const ANSWERS: &str = "| status | answer | meaning |\n|---|---|---|";

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

pub fn page() -> Result<String> {
    let schema = Schema::read()?;
    let mut operations = Vec::new();
    for (path, item) in schema.at("/paths")?.as_object().context("paths")? {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                let parameters = [&item["parameters"], &operation["parameters"]];
                let parameters: Vec<&Value> = parameters
                    .iter()
                    .filter_map(|list| list.as_array())
                    .flatten()
                    .collect();
                operations.push((
                    format!("{} {path}", method.to_uppercase()),
                    operation,
                    parameters,
                ));
            }
        }
    }
    let mut page = HEAD.to_owned();
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for (_, operation, _) in &operations {
        for row in rows(&schema, operation)? {
            *count.entry(row).or_default() += 1;
        }
    }
    let common: Vec<&String> = count
        .iter()
        .filter(|(_, times)| **times > operations.len() / 2)
        .map(|(row, _)| row)
        .collect();
    writeln!(
        page,
        "\nMost requests can also be answered with:\n\n{ANSWERS}"
    )?;
    common.iter().try_for_each(|row| writeln!(page, "{row}"))?;
    for (title, operation, parameters) in &operations {
        request(&schema, &mut page, title, operation, parameters)?;
        let own: Vec<String> = rows(&schema, operation)?
            .into_iter()
            .filter(|row| !common.contains(&row))
            .collect();
        if !own.is_empty() {
            writeln!(page, "\n{ANSWERS}\n{}", own.join("\n"))?;
        }
        example(&schema, &mut page, operation)?;
    }
    Ok(page)
}

fn request(
    schema: &Schema,
    page: &mut String,
    title: &str,
    operation: &Value,
    parameters: &[&Value],
) -> Result<()> {
    let text = |name: &str| operation[name].as_str().unwrap_or_default().trim();
    writeln!(
        page,
        "\n## `{title}`\n\n{}. Role: `{}`.",
        text("summary"),
        text("x-role")
    )?;
    if !text("description").is_empty() {
        writeln!(page, "\n{}", text("description"))?;
    }
    if !parameters.is_empty() {
        writeln!(
            page,
            "\n| parameter | in | shape | meaning |\n|---|---|---|---|"
        )?;
    }
    for parameter in parameters {
        let parameter = schema.resolved(parameter)?;
        let field = |name: &str| parameter.get(name).map(plain).unwrap_or_default();
        let shape = schema.shape(
            parameter
                .get("schema")
                .context("a parameter has a schema")?,
            &[],
        )?;
        writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            field("name"),
            field("in"),
            cell(&shape),
            cell(&field("description"))
        )?;
    }
    if let Some(body) = operation.get("requestBody") {
        let body = schema.resolved(body)?;
        writeln!(page, "\nBody: {}.", media_types(&body))?;
    }
    Ok(())
}

/// Returns the rows of the table of a request's answers.
fn rows(schema: &Schema, operation: &Value) -> Result<Vec<String>> {
    let answers = operation["responses"].as_object().context("answers")?;
    let row = |(status, answer): (&String, &Value)| {
        let answer = schema.resolved(answer)?;
        let meaning = answer.get("description").map(plain).unwrap_or_default();
        let status = if status == "default" { "other" } else { status };
        Ok(format!(
            "| {status} | {} | {} |",
            media_types(&answer),
            cell(&meaning)
        ))
    };
    answers.iter().map(row).collect()
}

fn example(schema: &Schema, page: &mut String, operation: &Value) -> Result<()> {
    for (status, answer) in operation["responses"].as_object().context("answers")? {
        let Some(example) =
            first_example(&schema.resolved(answer)?).filter(|_| status.starts_with('2'))
        else {
            continue;
        };
        let (language, text) = match &example {
            Value::String(text) => ("text", text.trim_end().to_owned()),
            value => ("json", serde_json::to_string_pretty(value)?),
        };
        return Ok(writeln!(
            page,
            "\nFor example:\n\n```{language}\n{text}\n```"
        )?);
    }
    Ok(())
}

fn media_types(part: &Map<String, Value>) -> String {
    let content = part.get("content").and_then(Value::as_object);
    let names = content
        .iter()
        .flat_map(|content| content.keys())
        .map(|name| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}

fn first_example(answer: &Map<String, Value>) -> Option<Value> {
    let content = answer.get("content")?.as_object()?;
    content.values().find_map(|body| {
        let named = body
            .get("examples")
            .and_then(Value::as_object)
            .and_then(|examples| examples.values().next());
        body.get("example")
            .or_else(|| named.and_then(|example| example.get("value")))
            .cloned()
    })
}
