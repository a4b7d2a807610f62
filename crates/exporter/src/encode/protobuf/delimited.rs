//! The conversion of a page of OpenMetrics to messages, line by line.

use prost::Message as _;

use super::line::{SampleLine, unescaped};
use super::message::{
    BucketMessage, FamilyMessage, HistogramMessage, NumberMessage, SampleMessage, TypeNumber,
};
use super::native;
use crate::encode::openmetrics::names::family::TOTAL;

/// The number of bytes after which a family continues in another message of the same name, so that
/// memory does not grow with the number of its series.
const MOST: usize = 4 << 20;

/// The conversion of a page, part by part. Each part has whole lines.
#[derive(Debug, Default)]
pub struct Delimited {
    /// The name of the family in OpenMetrics, without the ending of its samples.
    base: String,
    family: FamilyMessage,
    /// The size of the lines whose samples are not written yet, in bytes.
    waiting: usize,
}

impl Delimited {
    /// Converts the part of `out` from `start` on.
    pub fn convert(&mut self, start: usize, out: &mut Vec<u8>) {
        let page = out.split_off(start);
        for line in String::from_utf8_lossy(&page).lines() {
            match line.strip_prefix("# ") {
                Some("EOF") => self.end(out),
                Some(metadata) => self.metadata(metadata, out),
                None => self.sample(line, out),
            }
        }
    }

    fn metadata(&mut self, line: &str, out: &mut Vec<u8>) {
        let mut parts = line.splitn(3, ' ');
        let (keyword, base) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        let rest = parts.next().unwrap_or_default();
        if base != self.base {
            self.end(out);
            base.clone_into(&mut self.base);
            self.family.name = Some(base.to_owned());
        }
        match keyword {
            "TYPE" => {
                let (kind, ending) = described(rest);
                self.family.kind = Some(kind.into());
                if !base.ends_with(ending) {
                    self.family.name = Some(format!("{base}{ending}"));
                }
            }
            "HELP" => self.family.help = Some(unescaped(rest, None).0),
            // Units are part of the names.
            _ => {}
        }
    }

    fn sample(&mut self, text: &str, out: &mut Vec<u8>) {
        let Some(mut line) = SampleLine::parse(text) else {
            return;
        };
        let kind = self.family.kind();
        if matches!(kind, TypeNumber::Histogram | TypeNumber::GaugeHistogram) {
            let bound = line
                .take("le")
                .map(|bound| bound.parse().unwrap_or(f64::INFINITY));
            let is_same = self
                .family
                .metrics
                .last()
                .is_some_and(|last| last.labels == line.labels);
            if !is_same {
                self.pass_on(out);
                let histogram = Some(HistogramMessage::default());
                let labels = std::mem::take(&mut line.labels);
                self.family.metrics.push(SampleMessage {
                    labels,
                    histogram,
                    ..SampleMessage::default()
                });
            }
            let last = self
                .family
                .metrics
                .last_mut()
                .and_then(|last| last.histogram.as_mut());
            if let (Some(histogram), Some(ending)) = (last, line.name.strip_prefix(&self.base)) {
                add(histogram, ending, bound, &line);
            }
        } else if self.family.name.as_deref() == Some(&line.name) {
            self.pass_on(out);
            let number = Some(NumberMessage {
                value: Some(line.value),
            });
            let mut sample = SampleMessage {
                labels: line.labels,
                ..SampleMessage::default()
            };
            match kind {
                TypeNumber::Counter => sample.counter = number,
                TypeNumber::Gauge => sample.gauge = number,
                _ => sample.untyped = number,
            }
            self.family.metrics.push(sample);
        }
        self.waiting += text.len();
    }

    /// Writes the samples that are not written yet if there are many of them. Other samples of the
    /// same family may follow.
    fn pass_on(&mut self, out: &mut Vec<u8>) {
        if self.waiting >= MOST {
            let next = FamilyMessage {
                metrics: Vec::new(),
                ..self.family.clone()
            };
            write(std::mem::replace(&mut self.family, next), out);
            self.waiting = 0;
        }
    }

    /// Ends the family.
    fn end(&mut self, out: &mut Vec<u8>) {
        self.base.clear();
        self.waiting = 0;
        write(std::mem::take(&mut self.family), out);
    }
}

/// Adds the data of one line about a histogram.
fn add(histogram: &mut HistogramMessage, ending: &str, bound: Option<f64>, line: &SampleLine) {
    match (ending, bound) {
        ("_bucket", Some(bound)) => {
            if bound == f64::INFINITY {
                histogram.sample_count = Some(line.count);
            }
            let (cumulative_count, upper_bound) = (Some(line.count), Some(bound));
            histogram.buckets.push(BucketMessage {
                cumulative_count,
                upper_bound,
            });
        }
        ("_count" | "_gcount", None) => histogram.sample_count = Some(line.count),
        ("_sum" | "_gsum", None) => histogram.sample_sum = Some(line.value),
        // The time of creation.
        _ => {}
    }
}

/// Writes a family that has samples.
fn write(mut family: FamilyMessage, out: &mut Vec<u8>) {
    if family.metrics.is_empty() {
        return;
    }
    for histogram in family
        .metrics
        .iter_mut()
        .filter_map(|sample| sample.histogram.as_mut())
    {
        native::fill_in(histogram);
        // Without a sum, the message has NaN: a missing field would mean 0.
        histogram.sample_sum.get_or_insert(f64::NAN);
    }
    out.extend_from_slice(&family.encode_length_delimited_to_vec());
}

/// Returns the number of a type of OpenMetrics, and the suffix of its samples' names.
fn described(kind: &str) -> (TypeNumber, &'static str) {
    match kind {
        "counter" => (TypeNumber::Counter, TOTAL),
        "gauge" | "stateset" => (TypeNumber::Gauge, ""),
        "info" => (TypeNumber::Gauge, "_info"),
        "histogram" => (TypeNumber::Histogram, ""),
        "gaugehistogram" => (TypeNumber::GaugeHistogram, ""),
        _ => (TypeNumber::Untyped, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(parts: &[&str]) -> Vec<FamilyMessage> {
        let (mut delimited, mut out) = (Delimited::default(), Vec::new());
        for part in parts {
            let start = out.len();
            out.extend_from_slice(part.as_bytes());
            delimited.convert(start, &mut out);
        }
        let mut rest = out.as_slice();
        let mut families = Vec::new();
        while !rest.is_empty() {
            families.push(FamilyMessage::decode_length_delimited(&mut rest).expect("a message"));
        }
        families
    }

    const PAGE: &str = "# HELP a Of \\\"a\\\"\\n\n# TYPE a counter\na_total{x=\"1\"} 1\na_created{x=\"1\"} 5\na_total{x=\"2\"} 2\n\
        # TYPE none gauge\n# TYPE b unknown\nb -2.5\n# TYPE c info\nc_info{v=\"\"} 1\n# TYPE d histogram\n# UNIT d seconds\n\
        d_bucket{x=\"1\",le=\"1.0\"} 2\nd_bucket{x=\"1\",le=\"3.0\"} 5\nd_bucket{x=\"1\",le=\"+Inf\"} 5\nd_count{x=\"1\"} 5\nd_sum{x=\"1\"} 9\n\
        d_bucket{x=\"2\",le=\"1.0\"} 1\nd_bucket{x=\"2\",le=\"3.0\"} 1\nd_bucket{x=\"2\",le=\"+Inf\"} 1\n# EOF\n";

    #[test]
    fn each_family_is_a_message() {
        let families = converted(&[PAGE]);
        let named: Vec<_> = families
            .iter()
            .map(|family| (family.name(), family.kind()))
            .collect();
        use TypeNumber::{Counter, Gauge, Histogram, Untyped};
        assert_eq!(
            named,
            [
                ("a_total", Counter),
                ("b", Untyped),
                ("c_info", Gauge),
                ("d", Histogram)
            ]
        );
        assert_eq!(families[0].help(), "Of \"a\"\n");
        let counts: Vec<_> = families[0]
            .metrics
            .iter()
            .map(|m| m.counter.unwrap().value())
            .collect();
        assert_eq!(counts, [1.0, 2.0]);
        assert_eq!(families[1].metrics[0].untyped.unwrap().value(), -2.5);
        assert_eq!(families[2].metrics[0].gauge.unwrap().value(), 1.0);
        let [one, two] = &families[3].metrics[..] else {
            panic!("{families:?}")
        };
        let (one, two) = (
            one.histogram.as_ref().unwrap(),
            two.histogram.as_ref().unwrap(),
        );
        assert_eq!(
            (one.sample_count(), one.sample_sum(), one.buckets.len()),
            (5, 9.0, 3)
        );
        assert_eq!((one.zero_count(), &*one.positive_deltas), (2, &[3][..]));
        assert!(two.sample_sum().is_nan(), "no line has a sum");
    }

    #[test]
    fn parts_make_the_same_messages() {
        let lines: Vec<&str> = PAGE.split_inclusive('\n').collect();
        let text = |families: Vec<FamilyMessage>| format!("{families:?}");
        assert_eq!(text(converted(&lines)), text(converted(&[PAGE])));
    }

    #[test]
    fn a_large_family_goes_on_in_another_message() {
        let label = "v".repeat(MOST / 2);
        let sample = |n| format!("a{{x=\"{n}{label}\"}} {n}\n");
        let page = format!(
            "# TYPE a gauge\n{}{}{}# EOF\n",
            sample(1),
            sample(2),
            sample(3)
        );
        let families = converted(&[&page]);
        let counts: Vec<_> = families
            .iter()
            .map(|family| (family.name(), family.metrics.len()))
            .collect();
        assert_eq!(counts, [("a", 2), ("a", 1)]);
    }
}
