//! The numbers of one probe over time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use twinprobe_api::ConfigDocument;

use crate::top::counting::{GrowthKind, Measured, interval, is_time};
use crate::top::page::Sample;

/// The number of pictures that a sparkline shows.
pub const HISTORY: usize = 60;

/// One sample of a probe over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopSeries {
    /// The direction, the name and the key, in their shown form.
    pub name: String,
    pub family: String,
    /// The part of the family's name after the name of the metric; the whole family if the value is
    /// a number.
    pub field: String,
    pub value: f64,
    /// The count per second; `None` before it is known.
    pub rate: Option<f64>,
    /// The last rates, the newest at the end.
    pub history: VecDeque<u64>,
    /// The value from which the growth is measured.
    base: f64,
    /// False if the last page lacked the series.
    seen: bool,
}

/// The time in which sums have grown by the difference to their bases.
#[derive(Clone, Copy, Debug)]
enum Covered {
    Time(Duration),
    /// No window has ended.
    Nothing,
    Unknown,
}

/// The series of one probe.
#[derive(Clone, Debug, Default)]
pub struct SeriesSet {
    series: BTreeMap<String, TopSeries>,
    /// The number of scheduled window ends so far when the bases of sums were read.
    ends: Option<u64>,
    /// True if a page had later ends of windows, but the numbers of the earlier window.
    is_behind: bool,
}

/// The times of a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageTimes {
    /// The time since the previous page, if there was one.
    pub elapsed: Option<Duration>,
    /// The ends of the probe's windows by schedule, see [`scheduled`](crate::top::page::scheduled).
    pub ends: Option<u64>,
}

/// Labels that are the same for all series of a probe.
const COMMON: [&str; 4] = ["probe", "node", "instance", "direction"];

impl TopSeries {
    /// The rank among entries: by the rate, then by the value. Numbers without a rate come later,
    /// and times last.
    pub fn rank(&self) -> (f64, f64) {
        let rate = self
            .rate
            .unwrap_or(if is_time(&self.family) { -2.0 } else { -1.0 });
        (rate, self.value)
    }
}

impl SeriesSet {
    /// Takes the samples of a page.
    pub fn update(
        &mut self,
        samples: &[Sample],
        config: Option<&ConfigDocument>,
        times: PageTimes,
    ) {
        let measured: Vec<Measured> = samples
            .iter()
            .map(|sample| Measured::new(sample, config))
            .collect();
        let interval = config.and_then(interval);
        let names: Vec<String> = samples.iter().map(name).collect();
        let covered = match interval.zip(times.ends) {
            Some((interval, ends)) => self.covered(&names, samples, &measured, ends, interval),
            // A page ends the window of a probe without an interval, unless only requests do.
            None if measured
                .iter()
                .any(|measured| measured.counting == GrowthKind::Window) =>
            {
                Covered::Unknown
            }
            None => times.elapsed.map_or(Covered::Unknown, Covered::Time),
        };
        self.series
            .values_mut()
            .for_each(|series| series.seen = false);
        for ((sample, measured), name) in samples.iter().zip(measured).zip(names) {
            let is_new = !self.series.contains_key(&name);
            let series = self.series.entry(name.clone()).or_default();
            let time = match measured.counting {
                GrowthKind::Live => times.elapsed.map_or(Covered::Unknown, Covered::Time),
                GrowthKind::Sum => covered,
                GrowthKind::Window => interval.map_or(Covered::Unknown, Covered::Time),
                GrowthKind::Nothing => Covered::Unknown,
            };
            if measured.counting == GrowthKind::Window {
                series.base = 0.0;
            } else if is_new {
                series.base = sample.value;
            }
            match time {
                Covered::Time(time) => {
                    let grown = sample.value - series.base;
                    let is_known =
                        grown >= 0.0 && (!is_new || measured.counting == GrowthKind::Window);
                    series.rate = is_known.then(|| grown / time.as_secs_f64().max(0.001));
                    series.base = sample.value;
                }
                // The last rate stays until the next window ends.
                Covered::Nothing => {}
                Covered::Unknown => (series.rate, series.base) = (None, sample.value),
            }
            (series.name, series.family, series.field) =
                (name, sample.name.clone(), measured.field);
            (series.value, series.seen) = (sample.value, true);
            push(&mut series.history, series.rate);
        }
        self.series.retain(|_, series| series.seen);
    }

    /// Returns the time of the windows that sums hold since their bases. The page may count the end
    /// of a window whose numbers only the next page has.
    fn covered(
        &mut self,
        names: &[String],
        samples: &[Sample],
        measured: &[Measured],
        ends: u64,
        interval: Duration,
    ) -> Covered {
        let Some(more) = self.ends.and_then(|before| ends.checked_sub(before)) else {
            (self.ends, self.is_behind) = (Some(ends), false);
            return Covered::Unknown;
        };
        if more == 0 {
            return Covered::Nothing;
        }
        let mut sums = names
            .iter()
            .zip(samples)
            .zip(measured)
            .filter(|(_, of)| of.counting == GrowthKind::Sum);
        let has_changed = sums.any(|((name, sample), _)| {
            self.series
                .get(name)
                .is_none_or(|known| known.base != sample.value)
        });
        if !has_changed && !std::mem::replace(&mut self.is_behind, true) {
            return Covered::Nothing;
        }
        (self.ends, self.is_behind) = (Some(ends), false);
        Covered::Time(interval * u32::try_from(more).unwrap_or(u32::MAX))
    }

    pub fn iter(&self) -> impl Iterator<Item = &TopSeries> {
        self.series.values()
    }

    /// Returns the packets per second that the probe counts: the largest sum of a family that
    /// counts packets, since several may count the same ones.
    pub fn packets(&self) -> Option<f64> {
        let mut families: BTreeMap<&str, f64> = BTreeMap::new();
        for series in self
            .series
            .values()
            .filter(|series| series.family.contains("packets"))
        {
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

/// The direction, the name and the key of a sample.
fn name(sample: &Sample) -> String {
    let labels = sample
        .labels
        .iter()
        .filter(|(label, _)| !COMMON.contains(&label.as_str()));
    let key: Vec<String> = labels
        .map(|(label, value)| format!("{label}={value}"))
        .collect();
    let direction = sample
        .labels
        .get("direction")
        .map(|direction| format!("{direction} "));
    let name = format!(
        "{}{} {}",
        direction.unwrap_or_default(),
        sample.name,
        key.join(" ")
    );
    name.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(name: &str, key: &str, value: f64) -> Sample {
        let labels = [("probe", "p"), ("direction", "ingress"), ("key", key)];
        let labels = labels
            .into_iter()
            .map(|(label, value)| (label.to_owned(), value.to_owned()))
            .collect();
        Sample {
            name: name.to_owned(),
            labels,
            value,
        }
    }

    #[test]
    fn sums_grow_and_windows_count_for_their_interval() {
        let config: ConfigDocument = serde_json::from_value(
            json!({ "window": { "interval": "5s" }, "ingress": { "metrics": [
            { "name": "flow", "init": true }, { "name": "flow_all" } ] } }),
        )
        .unwrap();
        let mut set = SeriesSet::default();
        let page = |a: f64, all: f64| {
            [
                sample("flow_packets", "a", a),
                sample("flow_packets", "b", 50.0),
                sample("flow_all_packets_total", "", all),
            ]
        };
        let times = |seconds| PageTimes {
            elapsed: Some(Duration::from_secs(seconds)),
            ends: None,
        };
        set.update(&page(10.0, 100.0), Some(&config), PageTimes::default());
        assert_eq!(set.packets(), Some(12.0), "the sum is not known yet");
        set.update(&page(20.0, 300.0), Some(&config), times(2));
        assert_eq!(set.packets(), Some(100.0));
        let names: Vec<&str> = set.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names[1], "ingress flow_packets key=a");
        assert_eq!(set.iter().nth(1).unwrap().history, [2, 4]);
        set.update(&page(1.0, 5.0)[..1], Some(&config), times(2));
        assert_eq!(set.iter().count(), 1, "what is gone is forgotten");
    }
    #[test]
    fn sums_grow_over_the_time_of_their_windows() {
        let config: ConfigDocument =
            serde_json::from_value(json!({ "window": { "interval": "2s" },
            "ingress": { "metrics": [{ "name": "packets", "snapshot": true }] } }))
            .unwrap();
        let mut set = SeriesSet::default();
        let mut page = |value: f64, ends: u64| {
            let times = PageTimes {
                elapsed: Some(Duration::from_secs(1)),
                ends: Some(ends),
            };
            set.update(&[sample("packets_total", "a", value)], Some(&config), times);
            set.packets()
        };
        assert_eq!(page(100.0, 7), None);
        assert_eq!(page(100.0, 7), None, "no window has ended");
        let rates = [
            (700.0, 8),
            (700.0, 8),
            (1300.0, 9),
            (1300.0, 9),
            (3100.0, 12),
        ];
        assert_eq!(
            rates.map(|(value, ends)| page(value, ends)),
            [Some(300.0); 5]
        );
        let late = [
            (3100.0, 13),
            (3700.0, 13),
            (3700.0, 14),
            (3700.0, 14),
            (4300.0, 15),
        ];
        let expected = [
            Some(300.0),
            Some(300.0),
            Some(300.0),
            Some(0.0),
            Some(300.0),
        ];
        assert_eq!(
            late.map(|(value, ends)| page(value, ends)),
            expected,
            "the page counts an end too early"
        );
        assert_eq!(page(5.0, 1), None, "the daemon was started again");
        assert_eq!(page(605.0, 2), Some(300.0));
    }

    #[test]
    fn times_have_no_rate_and_come_last() {
        let config =
            serde_json::from_value(json!({ "subsystem": "net", "window": { "interval": "5s" },
            "ingress": { "metrics": [{ "name": "flows", "snapshot": true, "init": true }] } }));
        let mut set = SeriesSet::default();
        let page = [
            sample("net_flows_first_timestamp_seconds", "", 1_795_964_103.0),
            sample("net_flows_packets", "", 16.0),
        ];
        set.update(
            &page,
            Some(&config.unwrap()),
            PageTimes {
                elapsed: None,
                ends: Some(3),
            },
        );
        let mut all: Vec<&TopSeries> = set.iter().collect();
        all.sort_by(|a, b| b.rank().partial_cmp(&a.rank()).unwrap());
        let shown: Vec<_> = all
            .iter()
            .map(|series| (&*series.field, series.rate))
            .collect();
        assert_eq!(
            shown,
            [("packets", Some(3.2)), ("first_timestamp_seconds", None)]
        );
    }
}
