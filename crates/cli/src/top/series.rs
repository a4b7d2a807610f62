//! The numbers of one probe over time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use twinprobe_api::{ConfigDocument, MetricDocument};

use crate::top::page::Sample;

/// The number of pictures that a sparkline shows.
pub const HISTORY: usize = 60;

/// One sample of a probe over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopSeries {
    /// The direction, the name and the key, as they are shown.
    pub name: String,
    pub family: String,
    pub value: f64,
    /// The count per second; `None` before it is known.
    pub rate: Option<f64>,
    /// The last rates, the newest at the end.
    pub history: VecDeque<u64>,
    /// False after a page without the series.
    seen: bool,
}

/// The series of one probe.
#[derive(Clone, Debug, Default)]
pub struct SeriesSet(BTreeMap<String, TopSeries>);

/// Labels that are the same for all series of a probe.
const COMMON: [&str; 4] = ["probe", "node", "instance", "direction"];

impl SeriesSet {
    /// Takes the samples of a page, `elapsed` after the page before.
    pub fn update(&mut self, samples: &[Sample], config: Option<&ConfigDocument>, elapsed: Option<Duration>) {
        let interval = config.and_then(interval);
        self.0.values_mut().for_each(|series| series.seen = false);
        for sample in samples {
            let labels = sample.labels.iter().filter(|(label, _)| !COMMON.contains(&label.as_str()));
            let key: Vec<String> = labels.map(|(label, value)| format!("{label}={value}")).collect();
            let direction = sample.labels.get("direction").map(|direction| format!("{direction} "));
            let name = format!("{}{} {}", direction.unwrap_or_default(), sample.name, key.join(" "));
            let name = name.trim_end().to_owned();
            let known = self.0.get(&name).map(|series| series.value);
            let series = self.0.entry(name.clone()).or_default();
            // A window's count covers the length of the window. Any other number is compared with the page before.
            series.rate = if config.is_some_and(|config| is_reset(config, &sample.name)) {
                interval.map(|interval| sample.value / interval.as_secs_f64())
            } else {
                let grown = known.map(|known| sample.value - known).filter(|grown| *grown >= 0.0);
                grown.zip(elapsed).map(|(grown, elapsed)| grown / elapsed.as_secs_f64().max(0.001))
            };
            (series.name, series.family) = (name, sample.name.clone());
            (series.value, series.seen) = (sample.value, true);
            push(&mut series.history, series.rate);
        }
        self.0.retain(|_, series| series.seen);
    }

    pub fn iter(&self) -> impl Iterator<Item = &TopSeries> {
        self.0.values()
    }

    /// Returns the packets per second that the probe counts: the largest sum of a family that counts packets, since
    /// several may count the same ones.
    pub fn packets(&self) -> Option<f64> {
        let mut families: BTreeMap<&str, f64> = BTreeMap::new();
        for series in self.0.values().filter(|series| series.family.contains("packets")) {
            if let Some(rate) = series.rate {
                *families.entry(&series.family).or_default() += rate;
            }
        }
        families.into_values().max_by(f64::total_cmp)
    }
}

/// Adds a rate to a history.
pub fn push(history: &mut VecDeque<u64>, rate: Option<f64>) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(rate.unwrap_or_default().max(0.0) as u64);
}

/// Tells whether the metric that a sample belongs to begins anew with each window. A sample's name is that of its
/// metric, perhaps with a field and a suffix.
fn is_reset(config: &ConfigDocument, sample: &str) -> bool {
    let directions = [&config.ingress, &config.egress].into_iter().flatten();
    let metrics = directions.flat_map(|direction| direction.metrics.iter().flatten());
    let name = |metric: &&MetricDocument| {
        metric.name.as_deref().filter(|name| sample.starts_with(*name)).map(str::len)
    };
    let longest = metrics.filter(|metric| name(metric).is_some()).max_by_key(name);
    longest.is_some_and(|metric| metric.init == Some(true))
}

/// The time between the windows of a probe.
fn interval(config: &ConfigDocument) -> Option<Duration> {
    let text = config.window.as_ref()?.interval.as_deref()?;
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(number * unit)).filter(|interval| !interval.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(name: &str, key: &str, value: f64) -> Sample {
        let labels = [("probe", "p"), ("direction", "ingress"), ("key", key)];
        let labels = labels.into_iter().map(|(label, value)| (label.to_owned(), value.to_owned())).collect();
        Sample { name: name.to_owned(), labels, value }
    }

    #[test]
    fn sums_grow_and_windows_count_for_their_interval() {
        let config: ConfigDocument =
            serde_json::from_value(json!({ "window": { "interval": "5s" }, "ingress": { "metrics": [
            { "name": "flow", "init": true }, { "name": "flow_all" } ] } }))
            .unwrap();
        let mut set = SeriesSet::default();
        let page = |a: f64, all: f64| {
            [
                sample("flow_packets", "a", a),
                sample("flow_packets", "b", 50.0),
                sample("flow_all_packets_total", "", all),
            ]
        };
        set.update(&page(10.0, 100.0), Some(&config), None);
        assert_eq!(set.packets(), Some(12.0), "the sum is not known yet");
        set.update(&page(20.0, 300.0), Some(&config), Some(Duration::from_secs(2)));
        assert_eq!(set.packets(), Some(100.0));
        let names: Vec<&str> = set.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names[1], "ingress flow_packets key=a");
        assert_eq!(set.iter().nth(1).unwrap().history, [2, 4]);
        set.update(&page(1.0, 5.0)[..1], Some(&config), Some(Duration::from_secs(2)));
        assert_eq!(set.iter().count(), 1, "what is gone is forgotten");
    }
}
