//! The messages of remote write 2.0, as `prompb/io/prometheus/write/v2/types.proto` of Prometheus
//! has them. A message has a table with each text once, and each series has the metadata of its
//! family.

use std::collections::HashMap;

use prost::Message;

use super::message::{RemotePoint, WrittenLabel, WrittenMetadata, WrittenSample};

/// The body of a request in version 2 of the protocol.
#[derive(Clone, PartialEq, Message)]
pub struct SymbolRequest {
    /// The texts; the first one is empty.
    #[prost(string, repeated, tag = "4")]
    pub symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub series: Vec<SymbolSeries>,
}

/// Samples of one series, by time.
#[derive(Clone, PartialEq, Message)]
pub struct SymbolSeries {
    /// The places of the labels' texts in the table: the name and the value of each label, sorted
    /// by name.
    #[prost(uint32, repeated, tag = "1")]
    pub labels: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<WrittenSample>,
    #[prost(message, optional, tag = "5")]
    pub metadata: Option<SymbolMetadata>,
}

/// The type of a series' family.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SymbolMetadata {
    /// A number of the enumeration `MetricType`: the same as in 1.0.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(uint32, tag = "3")]
    pub help: u32,
    #[prost(uint32, tag = "4")]
    pub unit: u32,
}

/// The texts of a message, with their places.
#[derive(Default)]
struct SymbolTable<'a>(HashMap<&'a str, u32>);

impl<'a> SymbolTable<'a> {
    fn place(&mut self, text: &'a str, symbols: &mut Vec<String>) -> u32 {
        *self.0.entry(text).or_insert_with(|| {
            symbols.push(text.to_owned());
            // A message has fewer than 2^32 bytes, and therefore fewer texts.
            u32::try_from(symbols.len() - 1).unwrap_or_default()
        })
    }
}

/// Returns the message with these samples.
pub fn request<'a>(points: impl Iterator<Item = &'a RemotePoint>) -> SymbolRequest {
    let (mut request, mut table) = (SymbolRequest::default(), SymbolTable::default());
    let mut places = HashMap::<&[WrittenLabel], usize>::new();
    let SymbolRequest { symbols, series } = &mut request;
    table.place("", symbols);
    for point in points {
        // Each series has the metadata of its family.
        let RemotePoint::Sample {
            labels,
            sample,
            family,
        } = point
        else {
            continue;
        };
        let place = *places.entry(labels).or_insert_with(|| {
            let texts = labels
                .iter()
                .flat_map(|label| [&*label.name, &*label.value]);
            let labels = texts.map(|text| table.place(text, symbols)).collect();
            let WrittenMetadata {
                kind, help, unit, ..
            } = &**family;
            let [help, unit] = [help, unit].map(|text| table.place(text, symbols));
            let metadata = Some(SymbolMetadata {
                kind: *kind,
                help,
                unit,
            });
            series.push(SymbolSeries {
                labels,
                samples: Vec::new(),
                metadata,
            });
            series.len() - 1
        });
        series[place].samples.push(*sample);
    }
    request
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_text_stands_there_once() {
        let label = |name: &str, value: &str| WrittenLabel {
            name: name.into(),
            value: value.into(),
        };
        let family = Arc::new(WrittenMetadata {
            kind: 1,
            family: "a".into(),
            help: "node".into(),
            unit: String::new(),
        });
        let sample = |key: &str, time| RemotePoint::Sample {
            labels: vec![label("__name__", "a"), label("node", key)],
            sample: WrittenSample { value: 1.5, time },
            family: Arc::clone(&family),
        };
        let points = [
            sample("x", 1),
            RemotePoint::Family(Arc::clone(&family)),
            sample("a", 1),
            sample("x", 2),
        ];
        let found = request(points.iter());
        assert_eq!(found.symbols, ["", "__name__", "a", "node", "x"]);
        let shown: Vec<_> = found
            .series
            .iter()
            .map(|series| (&series.labels[..], series.samples.len()))
            .collect();
        assert_eq!(shown, [(&[1, 2, 3, 4][..], 2), (&[1, 2, 3, 2][..], 1)]);
        assert_eq!(
            found.series[0].metadata,
            Some(SymbolMetadata {
                kind: 1,
                help: 3,
                unit: 0
            })
        );
        assert_eq!(request([].iter()).symbols, [""]);
    }
}
