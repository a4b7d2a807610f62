//! `docs/reference/configuration.md`: every field of a configuration, from the schema.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::schema::{Schema, cell, plain};

const HEAD: &str = "# Reference: configuration

<!-- written by `make reference` from api/openapi.yaml -->

Every field of a monitoring configuration, as `api/openapi.yaml` describes it. [Configuration](../configuration.md) explains how fields work together
and what each error means.
";

/// The schemas with a section, and the title of the section.
const SECTIONS: &[(&str, &str)] = &[
    ("Config", "The probe"),
    ("Ingress", "ingress"),
    ("Egress", "egress"),
    ("Metric", "A metric"),
    ("WindowConfig", "window"),
];

pub fn page() -> Result<String> {
    let schema = Schema::read()?;
    let mut page = HEAD.to_owned();
    for (name, title) in SECTIONS {
        let section = schema.at(&format!("/components/schemas/{name}"))?;
        writeln!(
            page,
            "\n## {title}\n\n| field | shape | default | meaning |\n|---|---|---|---|"
        )?;
        let needed = section["required"].as_array().cloned().unwrap_or_default();
        for (field, value) in section["properties"].as_object().context("it has fields")? {
            let resolved = schema.resolved(value)?;
            let default = match resolved.get("default") {
                Some(default) => format!("`{}`", plain(default)),
                None if needed.contains(&Value::from(field.as_str())) => "needed".to_owned(),
                None => String::new(),
            };
            let meaning = resolved.get("description").map(plain).unwrap_or_default();
            let shape = schema.shape(value, SECTIONS)?;
            writeln!(
                page,
                "| `{field}` | {} | {default} | {} |",
                cell(&shape),
                cell(&meaning)
            )?;
        }
    }
    let example = schema.at(
        "/components/requestBodies/Config/content/application~1json/examples/everything/value",
    )?;
    writeln!(
        page,
        "\n## An example with every field\n\n```json\n{}\n```",
        serde_json::to_string_pretty(example)?
    )?;
    Ok(page)
}
