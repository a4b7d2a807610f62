//! `twinprobe series`.

use clap::Args;
use serde_json::{Number, Value};
use twinprobe_api::Chart;
use twinprobe_client::Client;

use crate::commands::read::metrics;
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::moment;
use crate::names::addresses::NamedAddresses;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::ViewOption;

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
    /// Begin at this time: `yesterday 14:00`, `2026-11-21 10:00` or 10:00 by the clock of this machine,
    /// 2026-11-21T10:00:00Z, or -1h for an hour ago [default: the oldest window]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::asked_begin)]
    from: Option<String>,
    /// End at this time [default: the newest window]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::asked_end)]
    to: Option<String>,
    /// Time from one point to the next [default: each window is a point]
    #[arg(long, value_name = "TIME")]
    step: Option<String>,
    /// Show this number of keys, the largest ones
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    top: usize,
    /// Show only this key, written as in documents; may be given several times
    #[arg(long, value_name = "KEY")]
    only: Vec<String>,
    /// Ask the server of `serve --history`, which may have numbers of times before the oldest window
    #[arg(long, conflicts_with = "only")]
    history: bool,
    /// Show counts per second
    #[arg(long)]
    rate: bool,
    /// Show the names of addresses that the daemon finds below the table; the formats for programs stay as they are
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
        query.extend(self.only.into_iter().map(|key| ("key", key)));
        let answer = match self.history {
            true => client.past_series(&self.name, &query).await?,
            false => client.series(&self.name, &query).await?,
        };
        let chart = answer.read()?;
        let view = self.view.output;
        let titles: Vec<String> = chart.series.iter().map(|series| title(&series.key)).collect();
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

/// Returns the only metric of a probe.
async fn only(client: &Client, name: &str) -> Result<String, CommandError> {
    let status = client.status(name).await?.read()?;
    let mut known = status.config.as_ref().map(metrics::names).unwrap_or_default();
    match known.len() {
        1 => Ok(known.remove(0)),
        _ => Err(CommandError::WhichMetric { name: name.to_owned(), known: known.join(", ") }),
    }
}

/// Returns the title of a key: its text, or the numbers of its parts.
fn title(key: &Value) -> String {
    match key {
        Value::Null => "value".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(parts) => parts.values().map(title).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Returns the addresses among the words of keys, each once with its name.
fn named(words: &[&str], names: &NamedAddresses, screen: Screen) -> String {
    let mut table = TextTable::default();
    for (_, word) in words.iter().enumerate().filter(|(at, word)| !words[..*at].contains(word)) {
        let Some(name) = names.of(word, usize::MAX) else { continue };
        let mut row = table.row();
        row.whole("ADDRESS", word);
        row.whole("NAME", &name);
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.render(screen)) }
}

fn render(chart: &Chart, rate: bool, screen: Screen) -> String {
    let mut table = TextTable::default();
    let cell = |number: Option<&Number>, seconds: f64| match number {
        Some(number) if rate => format!("{:.1}", number.as_f64().unwrap_or_default() / seconds),
        Some(number) => number.to_string(),
        None => String::new(),
    };
    for (point, (time, seconds)) in chart.times.iter().zip(&chart.seconds).enumerate() {
        let mut row = table.row();
        row.text("TIME", &times::precise(time));
        for series in &chart.series {
            let number = series.values.get(point).and_then(Option::as_ref);
            row.number(&title(&series.key), &cell(number, *seconds));
        }
        if let Some(others) = &chart.others {
            row.number("OTHERS", &cell(others.values.get(point).and_then(Option::as_ref), *seconds));
        }
    }
    let from = chart.source.as_ref().map(|source| format!("from {source}\n"));
    let mut text = if table.is_empty() { "no windows\n".to_owned() } else { table.render(screen) };
    text.push_str(&from.unwrap_or_default());
    if chart.left_out > 0 {
        text.push_str(&format!("{} windows could not be used\n", chart.left_out));
    }
    text
}

#[cfg(test)]
mod tests {
    use twinprobe_api::{ChartKind, ChartSeries, NameList, OtherKeys};
    use twinprobe_ebpf_common::Direction;

    use super::*;

    #[test]
    fn each_point_is_a_row_and_each_key_a_column() {
        let values = |numbers: [Option<u64>; 2]| numbers.map(|number| number.map(Number::from)).to_vec();
        let chart = Chart {
            probe: "p".into(),
            metric: "m".into(),
            direction: Direction::Ingress,
            field: "bytes".into(),
            shows: ChartKind::Increase,
            times: vec!["2026-11-21T10:00:00.000Z".into(), "2026-11-21T10:00:02.000Z".into()],
            seconds: vec![2.0, 2.0],
            windows: 2,
            left_out: 1,
            source: None,
            series: vec![ChartSeries {
                key: serde_json::json!({ "address": "192.0.2.1", "port": 53 }),
                total: Some(30_u64.into()),
                values: values([None, Some(30)]),
            }],
            others: Some(OtherKeys {
                keys: 2,
                total: Some(5_u64.into()),
                values: values([Some(5), Some(0)]),
            }),
        };
        let screen = Screen { width: 100, colour: false, wide: false };
        let [first, second] =
            ["00.000Z", "02.000Z"].map(|end| times::precise(&format!("2026-11-21T10:00:{end}")));
        let expected = format!(
            "\
TIME                     192.0.2.1 53  OTHERS
{first}                     5
{second}            30       0
1 windows could not be used
"
        );
        assert_eq!(render(&chart, false, screen), expected);
        assert!(render(&chart, true, screen).contains("15.0"), "per second");
    }

    #[test]
    fn names_stand_below_the_numbers() {
        let names = serde_json::json!({ "kinds": ["dns"], "ports": [], "addresses": [
            { "address": "192.0.2.1", "names": [{ "name": "db.example", "from": "dns" }] },
        ] });
        let names = NamedAddresses::from(serde_json::from_value::<NameList>(names).unwrap());
        let screen = Screen { width: 80, colour: false, wide: false };
        let words = ["192.0.2.1", "53", "192.0.2.1", "192.0.2.9"];
        assert_eq!(named(&words, &names, screen), "\nADDRESS    NAME\n192.0.2.1  db.example\n");
        assert_eq!(named(&words[3..], &names, screen), "");
    }
}
