//! The parameters of a chart.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use twinprobe_ebpf_common::Direction;

/// The most keys in a chart, not counting the sum of all others.
pub const MOST_KEYS: usize = 100;
const USUAL_KEYS: usize = 10;

/// The parameters of a chart that a client requests. Times are nanoseconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct ChartQuery {
    pub metric: String,
    pub direction: Option<Direction>,
    pub field: Option<String>,
    pub from: Option<i128>,
    pub to: Option<i128>,
    pub step: Option<Duration>,
    pub top: usize,
    /// The keys that the request names, in the form of documents; empty for the largest keys.
    pub keys: Vec<String>,
}

const NAMES: &str = "metric, field, direction, from, to, step, top, key";

impl ChartQuery {
    /// Reads the parameters of a request. An error names the parameter and its possible values.
    pub fn parse(pairs: Vec<(String, String)>) -> Result<Self, String> {
        let mut query = Self {
            top: USUAL_KEYS,
            ..Self::default()
        };
        let now = Timestamp::now();
        for (name, text) in pairs {
            match &*name {
                "metric" => query.metric = text,
                "field" => query.field = Some(text),
                "key" => query.keys.push(text),
                "direction" => {
                    let known = Direction::ALL
                        .into_iter()
                        .find(|direction| direction.name() == text);
                    let known = known
                        .ok_or_else(|| format!("direction={text} is neither ingress nor egress"))?;
                    query.direction = Some(known);
                }
                "from" => query.from = Some(time(&name, &text, now)?),
                "to" => query.to = Some(time(&name, &text, now)?),
                "step" => query.step = Some(step(&text)?),
                "top" => {
                    let top = text
                        .parse()
                        .ok()
                        .filter(|top| (1..=MOST_KEYS).contains(top));
                    query.top = top.ok_or_else(|| {
                        format!("top={text} is not a number of keys; use 1 to {MOST_KEYS}")
                    })?;
                }
                _ => return Err(format!("there is no parameter {name}; there are {NAMES}")),
            }
        }
        if query.metric.is_empty() {
            return Err("metric is missing: the name of a metric of the probe".to_owned());
        }
        if query.keys.len() > MOST_KEYS {
            return Err(format!(
                "{} keys are too many; the limit is {MOST_KEYS}",
                query.keys.len()
            ));
        }
        if let (Some(from), Some(to)) = (query.from, query.to)
            && from >= to
        {
            return Err("from is not before to".to_owned());
        }
        Ok(query)
    }

    /// Returns the parameters of a request for the same chart, in which all times are absolute.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let moment = |time: i128| {
            Timestamp::from_nanosecond(time)
                .ok()
                .map(|time| time.to_string())
        };
        let optional = [
            (
                "direction",
                self.direction.map(|direction| direction.name().to_owned()),
            ),
            ("field", self.field.clone()),
            ("from", self.from.and_then(moment)),
            ("to", self.to.and_then(moment)),
            (
                "step",
                self.step.map(|step| format!("{}ms", step.as_millis())),
            ),
        ];
        let mut parameters = vec![("metric", self.metric.clone())];
        parameters.extend(
            optional
                .into_iter()
                .filter_map(|(name, text)| Some((name, text?))),
        );
        parameters.extend(self.keys.iter().map(|key| ("key", key.clone())));
        parameters.push(("top", self.top.to_string()));
        parameters
    }

    /// Tells whether the request names a key, which is in the form of documents.
    pub fn names(&self, key: &Value) -> bool {
        let is_it = |wanted: &String| {
            key.as_str() == Some(wanted)
                || serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| wanted == *key)
        };
        self.keys.iter().any(is_it)
    }
}

/// Parses a time: RFC 3339, `now`, or a time before now, such as `-1h`.
fn time(name: &str, text: &str, now: Timestamp) -> Result<i128, String> {
    if text == "now" {
        return Ok(now.as_nanosecond());
    }
    let before = text
        .parse::<SignedDuration>()
        .ok()
        .filter(|_| text.starts_with('-'));
    let before = before.map(|before| now.as_nanosecond() + before.as_nanos());
    let time = before.or_else(|| text.parse::<Timestamp>().ok().map(Timestamp::as_nanosecond));
    time.ok_or_else(|| {
        format!(
            "{name}={text} is not a time such as 2026-11-21T10:00:00Z, now and -1h (an hour ago)"
        )
    })
}

fn step(text: &str) -> Result<Duration, String> {
    let step = text
        .parse::<SignedDuration>()
        .ok()
        .and_then(|step| Duration::try_from(step).ok());
    let step = step.filter(|step| *step >= Duration::from_millis(1));
    step.ok_or_else(|| format!("step={text} is not a duration of at least 1ms such as 10s, 5m, 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ChartQuery, String> {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        ChartQuery::parse(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    #[test]
    fn times_are_absolute_or_before_now() {
        let query = parse("metric=m&from=-1h&to=now&step=10s&top=3").unwrap();
        let hour = query.to.zip(query.from).map(|(to, from)| to - from);
        assert_eq!(
            (hour, query.step, query.top),
            (Some(3_600_000_000_000), Some(Duration::from_secs(10)), 3)
        );
        let query = parse("metric=m&from=1970-01-01T00:00:01Z").unwrap();
        assert_eq!(
            (query.from, query.to, query.top),
            (Some(1_000_000_000), None, USUAL_KEYS)
        );
    }

    #[test]
    fn the_parameters_of_a_chart_ask_for_the_same_chart() {
        let text = "metric=m&direction=egress&field=a.b&from=-1h&to=now&step=90s&top=3&key=7&key=x";
        let query = parse(text).unwrap();
        let pairs = query
            .parameters()
            .into_iter()
            .map(|(name, text)| (name.to_owned(), text))
            .collect();
        assert_eq!(
            format!("{query:?}"),
            format!("{:?}", ChartQuery::parse(pairs).unwrap())
        );
    }

    #[test]
    fn what_is_not_possible_is_named() {
        for (text, expected) in [
            ("field=x", "metric is missing"),
            ("metric=m&from=yesterday", "from=yesterday is not a time"),
            ("metric=m&from=1h", "from=1h is not a time"),
            ("metric=m&step=0s", "step=0s is not a duration"),
            (
                "metric=m&top=0",
                "top=0 is not a number of keys; use 1 to 100",
            ),
            ("metric=m&direction=in", "direction=in is neither"),
            (
                "metric=m&steps=1s",
                "there is no parameter steps; there are metric",
            ),
            ("metric=m&from=now&to=-1h", "from is not before to"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn keys_are_named_as_documents_show_them() {
        let query = parse("metric=m&key=192.0.2.1&key=7&key={\"port\":53}").unwrap();
        for key in ["\"192.0.2.1\"", "7", "{ \"port\": 53 }"] {
            assert!(query.names(&serde_json::from_str(key).unwrap()), "{key}");
        }
        assert!(!query.names(&Value::from(8)));
    }
}
