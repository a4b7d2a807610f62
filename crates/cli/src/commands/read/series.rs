//! `twinprobe series`.

use clap::Args;
use serde_json::{Number, Value};
use twinprobe_api::{Chart, ChartKind};
use twinprobe_client::{Answer, Client};

use crate::commands::read::metrics;
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::moment;
use crate::names::addresses::NamedAddresses;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::{TextRow, TextTable, escaped};
use crate::output::times;
use crate::output::units;
use crate::output::view::ViewOption;

/// The most keys of a chart.
const MOST_KEYS: usize = 100;
/// The number of keys that an error names.
const NAMED_KEYS: usize = 5;

/// Shows a number of the largest keys of a metric over the retained windows: a row for each point.
#[derive(Debug, Args)]
pub struct SeriesCommand {
    /// The probe
    name: String,
    /// The metric; may be left out if the probe has one only
    metric: Option<String>,
    /// Field of the value [default: the first counter]
    #[arg(long, value_name = "FIELD")]
    field: Option<String>,
    /// ingress or egress, if both have the metric
    #[arg(long, value_name = "DIRECTION")]
    direction: Option<String>,
    /// Begin at this time: `yesterday 14:00`, `2026-11-21 10:00` or 10:00 by the clock of this
    /// machine, 2026-11-21T10:00:00Z, or -1h for an hour ago [default: the oldest window]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::asked_begin)]
    from: Option<String>,
    /// End at this time [default: the newest window]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::asked_end)]
    to: Option<String>,
    /// Time from one point to the next. A window belongs to the point in which it ends, and TIME is
    /// the end of a point [default: each window is a point]
    #[arg(long, value_name = "TIME")]
    step: Option<String>,
    /// Show this number of keys, the largest ones
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    top: usize,
    /// Show only this key, written as in documents or as the heading has it; may be given several
    /// times
    #[arg(long, value_name = "KEY")]
    only: Vec<String>,
    /// Ask the server of `serve --history`, which may have numbers of times before the oldest
    /// window
    #[arg(long, conflicts_with = "only")]
    history: bool,
    /// Show counts per second
    #[arg(long)]
    rate: bool,
    /// Show the names of addresses that the daemon finds below the table; the formats for programs
    /// stay as they are
    #[arg(long)]
    names: bool,
    #[command(flatten)]
    view: ViewOption,
}

impl SeriesCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        let metric = match self.metric {
            Some(metric) => metric,
            None => only(client, &self.name).await?,
        };
        let mut query = vec![("metric", metric), ("top", self.top.to_string())];
        for (name, value) in [
            ("field", self.field),
            ("direction", self.direction),
            ("from", self.from),
            ("to", self.to),
            ("step", self.step),
        ] {
            query.extend(value.map(|value| (name, value)));
        }
        let answer = match self.history {
            true => client.past_series(&self.name, &query).await?,
            false if self.only.is_empty() => client.series(&self.name, &query).await?,
            false => of_keys(client, &self.name, query, &self.only).await?,
        };
        let chart = answer.read()?;
        let view = self.view.output;
        let titles: Vec<String> = chart
            .series
            .iter()
            .map(|series| title(&series.key))
            .collect();
        let words: Vec<&str> = titles.iter().flat_map(|title| title.split(' ')).collect();
        let names = match self.names && !view.is_structured() {
            true => NamedAddresses::ask(client, words.iter().copied()).await,
            false => NamedAddresses::default(),
        };
        view.show(&print::value(&answer)?, |screen| {
            render(&chart, self.rate, screen) + &named(&words, &names, screen)
        })
    }
}

/// Asks for some keys. A key that the chart lacks may be in the form of the heading.
async fn of_keys(
    client: &Client,
    name: &str,
    query: Vec<(&str, String)>,
    only: &[String],
) -> Result<Answer<Chart>, CommandError> {
    let with = |keys: Vec<String>| {
        let keys = keys.into_iter().map(|key| ("key", key));
        query.iter().cloned().chain(keys).collect::<Vec<_>>()
    };
    let answer = client.series(name, &with(only.to_vec())).await?;
    let found: Vec<Value> = answer
        .read()?
        .series
        .into_iter()
        .map(|series| series.key)
        .collect();
    if only
        .iter()
        .all(|wanted| found.iter().any(|key| is_written(key, wanted)))
    {
        return Ok(answer);
    }
    let mut whole: Vec<(&str, String)> = with(Vec::new());
    whole.retain(|(parameter, _)| *parameter != "top");
    whole.push(("top", MOST_KEYS.to_string()));
    let chart = client.series(name, &whole).await?.read()?;
    let more = chart.series.into_iter().map(|series| series.key);
    let known: Vec<Value> = found.into_iter().chain(more).collect();
    let keys = known_keys(only, &known, &chart.metric)?;
    Ok(client.series(name, &with(keys)).await?)
}

/// Tells whether `text` is this key in the form of documents.
fn is_written(key: &Value, text: &str) -> bool {
    key.as_str() == Some(text)
        || serde_json::from_str::<Value>(text).is_ok_and(|wanted| wanted == *key)
}

/// Returns the texts of the known keys that `only` names, as in documents or as in the heading.
fn known_keys(only: &[String], known: &[Value], metric: &str) -> Result<Vec<String>, CommandError> {
    let find = |wanted: &String| {
        let key = known
            .iter()
            .find(|key| is_written(key, wanted) || title(key) == *wanted);
        key.map(Value::to_string).ok_or_else(|| {
            let mut titles: Vec<String> = Vec::new();
            for title in known.iter().map(|key| escaped(&title(key), usize::MAX)) {
                if !titles.contains(&title) {
                    titles.push(title);
                }
            }
            let more = if titles.len() > NAMED_KEYS {
                ", ..."
            } else {
                ""
            };
            titles.truncate(NAMED_KEYS);
            let known = if titles.is_empty() {
                "none".to_owned()
            } else {
                titles.join(", ") + more
            };
            CommandError::NoKey {
                metric: metric.to_owned(),
                key: wanted.clone(),
                known,
            }
        })
    };
    only.iter().map(find).collect()
}

/// Returns the only metric of a probe.
async fn only(client: &Client, name: &str) -> Result<String, CommandError> {
    let status = client.status(name).await?.read()?;
    let mut known = status
        .config
        .as_ref()
        .map(metrics::names)
        .unwrap_or_default();
    match known.len() {
        1 => Ok(known.remove(0)),
        _ => Err(CommandError::WhichMetric {
            name: name.to_owned(),
            known: known.join(", "),
        }),
    }
}

/// Returns the title of a key: its text, or its parts' texts. Two or more numbers have their names,
/// as in the console: `vlan=7`. Ports are beside their addresses.
fn title(key: &Value) -> String {
    let is_bare = |(name, part): &(&String, &Value)| {
        let is_port = name
            .rsplit(['_', '.'])
            .next()
            .is_some_and(|word| word.eq_ignore_ascii_case("port"));
        part.is_number() && !is_port
    };
    match key {
        Value::Null => "value".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(parts) => {
            let are_named = parts.iter().filter(is_bare).count() > 1;
            let part = |(name, part): (&String, &Value)| match are_named && is_bare(&(name, part)) {
                true => format!("{name}={part}"),
                false => title(part),
            };
            parts.iter().map(part).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

/// Returns the addresses among the words of keys, each once with its name.
fn named(words: &[&str], names: &NamedAddresses, screen: Screen) -> String {
    let mut table = TextTable::default();
    for (_, word) in words
        .iter()
        .enumerate()
        .filter(|(at, word)| !words[..*at].contains(word))
    {
        let Some(name) = names.of(word, usize::MAX) else {
            continue;
        };
        let mut row = table.row();
        row.whole("ADDRESS", word);
        row.whole("NAME", &name);
    }
    if table.is_empty() {
        String::new()
    } else {
        format!("\n{}", table.render(screen))
    }
}

fn render(chart: &Chart, rate: bool, screen: Screen) -> String {
    let mut table = TextTable::default();
    let of = if chart.field.is_empty() {
        &chart.metric
    } else {
        &chart.field
    };
    let add =
        |row: &mut TextRow<'_>, title: &str, number: Option<&Number>, seconds: f64| match number {
            Some(number) if rate => {
                let rate = number.as_f64().unwrap_or_default() / seconds;
                row.amount(
                    title,
                    rate,
                    if screen.wide {
                        rate.to_string()
                    } else {
                        units::rate(of, rate)
                    },
                );
            }
            number => row.number(title, &number.map(Number::to_string).unwrap_or_default()),
        };
    for (point, (time, seconds)) in chart.times.iter().zip(&chart.seconds).enumerate() {
        let mut row = table.row();
        row.text("TIME", &times::precise(time));
        for series in &chart.series {
            let number = series.values.get(point).and_then(Option::as_ref);
            add(&mut row, &title(&series.key), number, *seconds);
        }
        if let Some(others) = &chart.others {
            add(
                &mut row,
                "OTHERS",
                others.values.get(point).and_then(Option::as_ref),
                *seconds,
            );
        }
    }
    let from = chart
        .source
        .as_ref()
        .map(|source| format!("from {source}\n"));
    let is_nothing = chart.series.is_empty() && chart.others.is_none();
    let mut text = match (table.is_empty(), is_nothing) {
        (true, _) => "no windows\n".to_owned(),
        (false, true) if chart.windows == 1 && chart.shows == ChartKind::Increase => {
            "nothing was counted in this time; windows: 1. A sum has an increase only since an earlier window\n".to_owned()
        }
        (false, true) => format!("nothing was counted in this time; windows: {}\n", chart.windows),
        (false, false) => table.render(screen),
    };
    text.push_str(&from.unwrap_or_default());
    if chart.left_out > 0 {
        text.push_str(&format!("{} windows could not be used\n", chart.left_out));
    }
    text
}

#[cfg(test)]
mod tests;
