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
    /// Begin at this time: `yesterday 14:00`, `2026-11-21 10:00` or 10:00 by the clock of this machine,
    /// 2026-11-21T10:00:00Z, or -1h for an hour ago [default: the oldest window]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::asked_begin)]
    from: Option<String>,
    /// End at this time [default: the newest window]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::asked_end)]
    to: Option<String>,
    /// Time from one point to the next. A window belongs to the point in which it ends, and TIME is the end of a point [default:
    /// each window is a point]
    #[arg(long, value_name = "TIME")]
    step: Option<String>,
    /// Show this number of keys, the largest ones
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    top: usize,
    /// Show only this key, written as in documents or as the heading has it; may be given several times
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
        let answer = match self.history {
            true => client.past_series(&self.name, &query).await?,
            false if self.only.is_empty() => client.series(&self.name, &query).await?,
            false => of_keys(client, &self.name, query, &self.only).await?,
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
    let found: Vec<Value> = answer.read()?.series.into_iter().map(|series| series.key).collect();
    if only.iter().all(|wanted| found.iter().any(|key| is_written(key, wanted))) {
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
    key.as_str() == Some(text) || serde_json::from_str::<Value>(text).is_ok_and(|wanted| wanted == *key)
}

/// Returns the texts of the known keys that `only` names, as in documents or as in the heading.
fn known_keys(only: &[String], known: &[Value], metric: &str) -> Result<Vec<String>, CommandError> {
    let find = |wanted: &String| {
        let key = known.iter().find(|key| is_written(key, wanted) || title(key) == *wanted);
        key.map(Value::to_string).ok_or_else(|| {
            let mut titles: Vec<String> = Vec::new();
            for title in known.iter().map(|key| escaped(&title(key), usize::MAX)) {
                if !titles.contains(&title) {
                    titles.push(title);
                }
            }
            let more = if titles.len() > NAMED_KEYS { ", ..." } else { "" };
            titles.truncate(NAMED_KEYS);
            let known = if titles.is_empty() { "none".to_owned() } else { titles.join(", ") + more };
            CommandError::NoKey { metric: metric.to_owned(), key: wanted.clone(), known }
        })
    };
    only.iter().map(find).collect()
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

/// Returns the title of a key: its text, or its parts' texts. Two or more numbers have their names, as in the console:
/// `vlan=7`. Ports are beside their addresses.
fn title(key: &Value) -> String {
    let is_bare = |(name, part): &(&String, &Value)| {
        let is_port = name.rsplit(['_', '.']).next().is_some_and(|word| word.eq_ignore_ascii_case("port"));
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
    let of = if chart.field.is_empty() { &chart.metric } else { &chart.field };
    let add = |row: &mut TextRow<'_>, title: &str, number: Option<&Number>, seconds: f64| match number {
        Some(number) if rate => {
            let rate = number.as_f64().unwrap_or_default() / seconds;
            row.amount(title, rate, if screen.wide { rate.to_string() } else { units::rate(of, rate) });
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
            add(&mut row, "OTHERS", others.values.get(point).and_then(Option::as_ref), *seconds);
        }
    }
    let from = chart.source.as_ref().map(|source| format!("from {source}\n"));
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
mod tests {
    use twinprobe_api::{ChartSeries, NameList, OtherKeys};
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
        let idle = Chart { series: Vec::new(), others: None, ..chart.clone() };
        assert!(render(&idle, false, screen).starts_with("nothing was counted in this time; windows: 2\n"));
        let rates = render(&chart, true, screen);
        assert!(rates.contains(" 15 B/s ") && rates.contains("2.50 B/s"), "per second: {rates}");
    }

    #[test]
    fn numbers_of_a_key_have_names_where_nobody_could_tell_them_apart() {
        let frame = serde_json::json!({ "interface": "eth0", "tags": 1, "vlan": 7, "address": "192.0.2.1" });
        assert_eq!(title(&frame), "eth0 tags=1 vlan=7 192.0.2.1");
        let flow =
            serde_json::json!({ "address": "192.0.2.1", "L4_SRC_PORT": 53, "peer_port": 9, "ttl": 64 });
        assert_eq!(title(&flow), "192.0.2.1 53 9 64");
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

    #[test]
    fn a_key_may_be_written_as_in_documents_and_as_in_the_heading() {
        let key = |port: u64| serde_json::json!({ "interface": "s0", "port": port });
        let known: Vec<Value> = (0..7).map(key).collect();
        let find = |wanted: &str| known_keys(&[wanted.to_owned()], &known, "ports");
        let expected = [r#"{"interface":"s0","port":5}"#.to_owned()];
        assert_eq!(find(r#"{ "port": 5, "interface": "s0" }"#).unwrap(), expected);
        assert_eq!(find("s0 5").unwrap(), expected);
        let error = find("192.0.2.1").unwrap_err();
        let words = "ports has no key 192.0.2.1 in these windows; it has s0 0, s0 1, s0 2, s0 3, s0 4, ...";
        assert_eq!((error.to_string().as_str(), error.status()), (words, 1));
        let none = known_keys(&["a".to_owned()], &[], "ports").unwrap_err().to_string();
        assert!(none.ends_with("it has none"), "{none}");
        assert!(is_written(&serde_json::json!("5"), "5") && is_written(&serde_json::json!(5), "5"));
    }
}
