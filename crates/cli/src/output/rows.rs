//! A metrics document as tables: each leaf of an entry's key and value is a column.

#[cfg(test)]
mod tests;

use serde_json::Value;
use twinprobe_api::ConfigDocument;

use crate::output::histogram;
use crate::output::screen::{self, HEADING, Screen};
use crate::output::table::{TextRow, TextTable};
use crate::output::times;
use crate::output::units;

/// The largest number of CPUs shown side by side. More CPUs, or values that are structs, take a row
/// each.
const CPU_COLUMNS: usize = 8;

/// The largest number of characters of bytes in hex that are shown: those of a number of 128 bits.
const SKETCH: usize = 34;

/// The member of a metric that marks its values as rates: see [`crate::output::rates`].
pub const PER_SECOND: &str = "per_second";

/// The rows that are shown, and their order.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The column to sort by.
    pub sort: Option<String>,
    /// The number by which the daemon has chosen the rows, if a metric has it.
    pub by: Option<String>,
    /// The number of rows of each metric.
    pub top: Option<usize>,
}

/// A document as tables.
pub struct Tables {
    head: Option<String>,
    metrics: Vec<MetricTable>,
}

struct MetricTable {
    /// The direction and the name.
    name: String,
    /// The words after the name.
    about: String,
    table: TextTable,
    /// The column by which the rows are sorted by default.
    order: Option<String>,
    /// The line about the entries that are left out.
    others: Option<String>,
    /// A line below the table.
    foot: Option<String>,
    /// True if the rows are the ranges of a histogram.
    has_ranges: bool,
}

impl Tables {
    /// Sorts and cuts the rows.
    #[must_use]
    pub fn chosen(mut self, choice: &Choice) -> Self {
        for metric in &mut self.metrics {
            let table = &mut metric.table;
            let is_sorted = choice
                .sort
                .as_ref()
                .or(choice.by.as_ref())
                .is_some_and(|by| table.sort(by));
            if let Some(order) = metric
                .order
                .take()
                .filter(|_| !is_sorted && choice.sort.is_none())
            {
                table.sort(&order);
            }
            if let Some(top) = choice.top.filter(|_| metric.has_ranges && !is_sorted) {
                metric.others = histogram::others(&table.keep_largest(histogram::COUNT, top));
                continue;
            }
            let dropped = choice.top.map_or(0, |top| table.truncate(top));
            if dropped > 0 {
                metric.others = Some(format!("and {dropped} more\n"));
            }
        }
        self
    }

    /// Returns the texts of the keys that are shown.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.metrics.iter().flat_map(|metric| metric.table.keys())
    }

    /// Adds names to the keys that have names.
    pub fn name_keys(&mut self, name: impl Fn(&str) -> Option<String>) {
        self.metrics
            .iter_mut()
            .for_each(|metric| metric.table.name_keys(&name));
    }

    /// Gives keys without parts the labels of a configuration as titles.
    pub fn title_keys(&mut self, config: &ConfigDocument) {
        for metric in &mut self.metrics {
            let (direction, name) = metric.name.split_once(' ').unwrap_or_default();
            let direction = if direction == "ingress" {
                &config.ingress
            } else {
                &config.egress
            };
            let mut metrics = direction
                .iter()
                .flat_map(|direction| direction.metrics.iter().flatten());
            let known = metrics.find(|known| {
                known
                    .name
                    .as_ref()
                    .or(known.map.as_ref())
                    .is_some_and(|it| it == name)
            });
            metric.table.key_title = known.and_then(|known| known.key_label.clone());
        }
    }

    /// Returns the titles of all columns if none of them is `column`. Returns `None` while a table
    /// is empty, because its columns are not known yet.
    pub fn lack(&mut self, column: &str) -> Option<Vec<String>> {
        let titles = || {
            self.metrics
                .iter()
                .flat_map(|metric| metric.table.titles())
                .cloned()
        };
        let mut known: Vec<String> = Vec::new();
        for title in titles() {
            if !known.contains(&title) {
                known.push(title);
            }
        }
        let has = self
            .metrics
            .iter_mut()
            .any(|metric| metric.table.sort(column));
        let is_known = self.metrics.iter().all(|metric| !metric.table.is_empty());
        (!has && is_known && !known.is_empty()).then_some(known)
    }
}

/// Makes one table per metric. A `wide` one has exact numbers, and bytes that are meant for
/// machines.
pub fn tables(document: &Value, wide: bool) -> Tables {
    let part = |window: &Value, name: &str| {
        times::precise(&window.get(name).map(plain).unwrap_or_default())
    };
    let head = document["window"].is_object().then(|| {
        let window = &document["window"];
        match window.get("seq") {
            Some(seq) => {
                format!(
                    "window {}: {} to {}",
                    plain(seq),
                    part(window, "start"),
                    part(window, "end")
                )
            }
            None => format!("{} to {}", part(window, "start"), part(window, "end")),
        }
    });
    let mut metrics = Vec::new();
    for direction in ["ingress", "egress"] {
        let found = document[direction].as_object().into_iter().flatten();
        for (name, metric) in
            found.filter(|(_, metric)| has_rows(metric) || losses(metric).next().is_some())
        {
            metrics.push(shown(direction, name, metric, wide));
        }
    }
    Tables { head, metrics }
}

/// Renders the tables, each under a line that describes the metric.
pub fn render(tables: Tables, screen: Screen) -> String {
    let mut blocks = Vec::new();
    blocks.extend(tables.head.map(|head| head + "\n"));
    for MetricTable {
        name,
        about,
        table,
        others,
        foot,
        ..
    } in tables.metrics
    {
        let head = screen::folded(&format!("{name}{about}"), screen.width, " ");
        let head = match head.strip_prefix(&name) {
            Some(rest) => screen.paint(HEADING, &name) + rest,
            None => head,
        };
        let mut block = head + &table.render(screen);
        block.extend(others.map(|others| screen::folded(&others, screen.width, ", ")));
        block.extend(foot.map(|foot| screen::folded(&foot, screen.width, " ")));
        blocks.push(block);
    }
    if blocks.is_empty() {
        "no metrics\n".to_owned()
    } else {
        blocks.join("\n")
    }
}

/// Tells whether a metric may have entries. A ring, and a map that no metric shows, have their
/// losses only.
fn has_rows(metric: &Value) -> bool {
    let no_entries = metric["entries"].as_array().is_some_and(Vec::is_empty);
    !no_entries || metric.get("entries_used").is_some() || metric.get("completeness").is_none()
}

/// Returns the kind and the number of failed insertions into a metric's map.
fn losses(metric: &Value) -> impl Iterator<Item = (u64, &'static str)> {
    let counts = [
        ("failed_inserts", "insertions"),
        ("failed_reserves", "events"),
    ];
    counts
        .into_iter()
        .filter_map(|(name, what)| match metric["completeness"][name].as_u64() {
            Some(lost @ 1..) => Some((lost, what)),
            _ => None,
        })
}

fn about(metric: &Value) -> String {
    let mut about = format!(" ({}", plain(&metric["type"]));
    if let Some(agg) = metric["agg"].as_str() {
        about.push_str(&format!(", {agg} over the CPUs"));
    }
    if metric[PER_SECOND] == true {
        about.push_str(", per second");
    }
    if metric["full"] == true {
        about.push_str(", full");
    }
    for (lost, what) in losses(metric) {
        about.push_str(&format!(", {lost} {what} found no room"));
    }
    about.push(')');
    if let Some(help) = metric["help"].as_str().filter(|help| !help.is_empty()) {
        about.push_str(&format!(": {help}"));
    }
    if metric["entries"].as_array().is_none_or(Vec::is_empty) {
        about.push_str("\nno entries");
    }
    about
}

/// Returns a value without JSON's quotes.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Makes the table of a metric. Rows of maps whose entries come and go begin with the largest by
/// the first number of the value.
fn shown(direction: &str, name: &str, metric: &Value, wide: bool) -> MetricTable {
    let title = format!("{direction} {name}");
    let about = about(metric);
    // A number that is a rate does not count values.
    if let Some(all) = histogram::distributions(metric).filter(|_| metric[PER_SECOND] != true) {
        let table = histogram::table(name, &all, wide);
        let foot = histogram::percentiles(name, &all).or_else(|| Some("no values".to_owned()));
        return MetricTable {
            name: title,
            about,
            table,
            order: None,
            others: None,
            foot,
            has_ranges: true,
        };
    }
    let kind = metric["type"].as_str().unwrap_or_default();
    let has_order = ["array", "queue", "stack"]
        .iter()
        .any(|word| kind.contains(word));
    let table = table(metric, wide);
    let order = table.first_number().filter(|_| !has_order).cloned();
    MetricTable {
        name: title,
        about,
        table,
        order,
        others: others(metric),
        foot: None,
        has_ranges: false,
    }
}

/// Returns the line about the entries that the daemon has left out, with the sums of their numbers.
fn others(metric: &Value) -> Option<String> {
    let entries = metric["others"]["entries"].as_u64()?;
    let mut numbers = Vec::new();
    totals("", &metric["others"]["value"], &mut numbers);
    let numbers = if numbers.is_empty() {
        String::new()
    } else {
        format!(": {}", numbers.join(", "))
    };
    Some(format!("and {entries} more{numbers}\n"))
}

/// Gathers the numbers of a value, each with its name.
fn totals(name: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Number(number) if name.is_empty() => found.push(number.to_string()),
        Value::Number(number) => found.push(format!("{name} {number}")),
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() {
                    field.clone()
                } else {
                    format!("{name}.{field}")
                };
                totals(&name, value, found);
            }
        }
        _ => {}
    }
}

fn table(metric: &Value, wide: bool) -> TextTable {
    let per_cpu = metric["agg"].is_null()
        && metric["type"]
            .as_str()
            .is_some_and(|kind| kind.contains("percpu_"));
    let rates = metric[PER_SECOND] == true;
    let mut table = TextTable::default();
    for entry in metric["entries"].as_array().into_iter().flatten() {
        let (key, value) = (&entry["key"], &entry["value"]);
        match value {
            Value::Array(cpus) if per_cpu && !fits_columns(cpus) => {
                for (cpu, value) in cpus.iter().enumerate() {
                    let mut row = table.row();
                    leaves(&mut row, "key", key, false);
                    row.number("cpu", &cpu.to_string());
                    members(&mut row, value, rates, wide);
                }
            }
            Value::Array(cpus) if per_cpu => {
                let mut row = table.row();
                leaves(&mut row, "key", key, false);
                for (cpu, value) in cpus.iter().enumerate() {
                    leaves(&mut row, &format!("cpu{cpu}"), value, rates);
                }
            }
            value => {
                let mut row = table.row();
                leaves(&mut row, "key", key, false);
                members(&mut row, value, rates, wide);
            }
        }
    }
    table
}

fn fits_columns(cpus: &[Value]) -> bool {
    cpus.len() <= CPU_COLUMNS
        && !cpus
            .iter()
            .any(|value| value.is_object() || value.is_array())
}

/// Adds the fields of a struct under their own names, and any other value as `value`.
fn members(row: &mut TextRow<'_>, value: &Value, rates: bool, wide: bool) {
    match value {
        Value::Object(fields) => {
            let shown = fields.iter().filter(|(_, field)| wide || !is_sketch(field));
            for (name, field) in shown {
                match field {
                    Value::Object(inside) if !wide => {
                        let shown = inside.iter().filter(|(_, field)| !is_sketch(field));
                        shown.for_each(|(of, field)| {
                            leaves(row, &format!("{name}.{of}"), field, rates);
                        });
                    }
                    field => leaves(row, name, field, rates),
                }
            }
        }
        other => leaves(row, "value", other, rates),
    }
}

/// Tells whether a value is the inside of a sketch: the bits of an estimate are unreadable for
/// people.
fn is_sketch(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.len() > SKETCH && text.starts_with("0x"))
}

fn leaves(row: &mut TextRow<'_>, title: &str, value: &Value, rates: bool) {
    match value {
        // Queues have no keys.
        Value::Null => {}
        Value::Object(fields) => {
            for (name, field) in fields {
                leaves(row, &format!("{title}.{name}"), field, rates);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (i, item) in items.iter().enumerate() {
                leaves(row, &format!("{title}[{i}]"), item, rates);
            }
        }
        Value::Number(number) => match number.as_f64().filter(|_| rates) {
            Some(rate) => row.amount(&format!("{title}/s"), rate, units::rate(title, rate)),
            None => row.number(title, &number.to_string()),
        },
        // Keys are never shortened: times that differ look different.
        Value::String(text) if times::is_time(text) && !title.starts_with("key") => {
            row.text(title, &times::precise(text));
        }
        Value::String(text) => row.text(title, text),
        other => row.text(title, &other.to_string()),
    }
}
