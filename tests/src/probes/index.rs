//! The list of the ready-made probes: `probes/index.json`, and the table in `probes/README.md`.
//! Both follow from the configurations and from the first lines of each README.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json as object};

use super::{configuration, directory, json, names, readme};

/// The lines of `probes/README.md` before and after the table.
const TABLE: [&str; 2] = [
    "<!-- the table is written by `make probes` -->\n",
    "<!-- end of the table -->\n",
];

/// Returns the text that `probes/index.json` should have.
pub fn index_text() -> Result<String> {
    let entries = names()?
        .iter()
        .map(|name| entry(name))
        .collect::<Result<Vec<_>>>()?;
    Ok(serde_json::to_string_pretty(&entries)? + "\n")
}

/// Returns the text that `probes/README.md` should have: the present one with the present table.
pub fn readme_text() -> Result<String> {
    let text =
        fs::read_to_string(directory().join("README.md")).context("read probes/README.md")?;
    let (before, rest) = text
        .split_once(TABLE[0])
        .context("probes/README.md has a table")?;
    let (_, after) = rest.split_once(TABLE[1]).context("the table has an end")?;
    let mut table = String::from(
        "| probe | shows | directions | hooks | ns per packet | tags |\n|---|---|---|---|---|---|\n",
    );
    for name in names()? {
        let entry = entry(&name)?;
        let title = entry["title"].as_str().unwrap_or_default();
        let [directions, hooks, tags] =
            ["directions", "hooks", "tags"].map(|field| words(&entry[field]));
        let cost = &entry["cost"];
        table += &format!(
            "| [{name}]({name}/README.md) | {title} | {directions} | {hooks} | {cost} | {tags} |\n"
        );
    }
    Ok([before, TABLE[0], &table, TABLE[1], after].concat())
}

fn words(list: &Value) -> String {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the entry of the index for a probe.
pub fn entry(name: &str) -> Result<Value> {
    let (readme, config) = (readme(name)?, configuration(name, "eth0")?);
    let title = readme
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(&format!("# {name}: ")));
    let title = title.with_context(|| format!("{name}/README.md begins with `# {name}: TITLE`"))?;
    let summary = readme
        .split("\n\n")
        .nth(1)
        .unwrap_or_default()
        .replace('\n', " ");
    let line = |start: &str| {
        let found = readme.lines().find_map(|line| line.strip_prefix(start));
        found.with_context(|| format!("{name}/README.md has a line `{start}...`"))
    };
    let cost = line("- Cost: ")?;
    let cost: u64 = cost
        .split_once(" ns per packet")
        .and_then(|(number, _)| number.parse().ok())
        .with_context(|| format!("{name}/README.md: `- Cost: N ns per packet`, not {cost}"))?;
    let tags: Vec<&str> = line("- Tags: ")?.split(", ").collect();
    ensure!(
        !summary.is_empty() && !title.is_empty(),
        "{name}/README.md says what the probe is for"
    );
    let hooks: &[&str] = if config["ingress"]["hook"] == "xdp" {
        &["xdp", "tc"]
    } else {
        &["tc"]
    };
    let directions: Vec<&str> = ["ingress", "egress"]
        .into_iter()
        .filter(|direction| config.get(direction).is_some())
        .collect();
    let metrics = directions
        .iter()
        .flat_map(|direction| config[direction]["metrics"].as_array());
    let mut metrics: Vec<&Value> = metrics.flatten().map(|metric| &metric["name"]).collect();
    metrics.sort_by_key(|name| name.as_str());
    metrics.dedup();
    Ok(object!({
        "name": name, "title": title, "summary": summary, "hooks": hooks, "directions": directions,
        "metrics": metrics, "fields": fields(name)?, "cost": cost, "tags": tags,
    }))
}

/// Returns the columns of each metric, as the window over the probe's captures has them. Events are
/// not in it.
fn fields(name: &str) -> Result<Map<String, Value>> {
    let expected = json(name, "expected.json")?;
    let mut fields = Map::new();
    for direction in ["ingress", "egress"] {
        for (metric, shown) in expected[direction].as_object().into_iter().flatten() {
            let Some(entry) = shown["entries"].get(0) else {
                continue;
            };
            let mut names = Vec::new();
            leaves("key", &entry["key"], &mut names);
            match &entry["value"] {
                Value::Object(members) => {
                    members
                        .iter()
                        .for_each(|(member, value)| leaves(member, value, &mut names));
                }
                value => leaves("value", value, &mut names),
            }
            fields.entry(metric.clone()).or_insert_with(|| names.into());
        }
    }
    Ok(fields)
}

fn leaves(title: &str, value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(members) => {
            members
                .iter()
                .for_each(|(member, value)| leaves(&format!("{title}.{member}"), value, names));
        }
        _ => names.push(title.to_owned()),
    }
}
