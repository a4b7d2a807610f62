//! The reader of OpenMetrics, as far as daemons write it: each family has a type, and no sample has
//! a time or an exemplar.

use std::borrow::Cow;

use super::document::{NamedSample, SampleDocument, SampleFamily, SampleKind, SamplePoint};

/// The line that ends a document.
const END: &str = "# EOF";

/// A document, read in pieces.
pub struct DocumentPieces<'a> {
    rest: &'a str,
    /// The family that continues in the next piece, without its points.
    family: Option<SampleFamily<'a>>,
    /// The most points of a piece.
    points: usize,
}

/// Reads a document in pieces of at most so many points, at least one. An error has the line that
/// can't be read.
pub fn pieces(text: &[u8], points: usize) -> Result<DocumentPieces<'_>, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let whole = text.trim_end_matches('\n').strip_suffix(END);
    let rest = whole.filter(|rest| rest.is_empty() || rest.ends_with('\n'));
    let rest = rest.ok_or_else(|| format!("the document has no end: {END} is missing"))?;
    Ok(DocumentPieces {
        rest,
        family: None,
        points: points.max(1),
    })
}

impl<'a> DocumentPieces<'a> {
    fn piece(&mut self) -> Result<SampleDocument<'a>, String> {
        let mut piece = SampleDocument {
            families: self.family.take().into_iter().collect(),
        };
        let mut points = 0;
        while let Some((line, rest)) = self.rest.split_once('\n') {
            let unreadable = || format!("{line:?} is not a line of OpenMetrics");
            if let Some(comment) = line.strip_prefix("# ") {
                metadata(comment, &mut piece).ok_or_else(unreadable)?;
            } else {
                let sample = sample(line).ok_or_else(unreadable)?;
                let family = piece
                    .families
                    .last_mut()
                    .filter(|family| sample.name.starts_with(family.name));
                let family = family.ok_or_else(unreadable)?;
                match family
                    .points
                    .last_mut()
                    .filter(|last| family.kind.is_histogram() && last.has(&sample))
                {
                    Some(point) => point.samples.push(sample),
                    None if points == self.points => {
                        self.family = Some(family.head());
                        if family.points.is_empty() {
                            piece.families.pop();
                        }
                        break;
                    }
                    None => {
                        family.points.push(SamplePoint {
                            samples: vec![sample],
                        });
                        points += 1;
                    }
                }
            }
            self.rest = rest;
        }
        Ok(piece)
    }
}

impl<'a> Iterator for DocumentPieces<'a> {
    type Item = Result<SampleDocument<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let piece = self.piece();
        if piece.is_err() {
            self.rest = "";
        }
        Some(piece)
    }
}

/// Reads the part of a line after its `#`.
fn metadata<'a>(comment: &'a str, document: &mut SampleDocument<'a>) -> Option<()> {
    let mut words = comment.splitn(3, ' ');
    let (word, name, rest) = (
        words.next()?,
        words.next()?,
        words.next().unwrap_or_default(),
    );
    match word {
        "TYPE" => {
            let kind = match rest {
                "counter" => SampleKind::Counter,
                "gauge" => SampleKind::Gauge,
                "histogram" => SampleKind::Histogram,
                "gaugehistogram" => SampleKind::GaugeHistogram,
                "info" => SampleKind::Info,
                "unknown" => SampleKind::Unknown,
                _ => return None,
            };
            document.families.push(SampleFamily {
                name,
                kind,
                help: Cow::default(),
                unit: "",
                points: Vec::new(),
            });
        }
        "HELP" => {
            let family = document
                .families
                .last_mut()
                .filter(|family| family.name == name)?;
            family.help = unescaped(rest);
        }
        "UNIT" => {
            let family = document
                .families
                .last_mut()
                .filter(|family| family.name == name)?;
            family.unit = rest;
        }
        _ => return None,
    }
    Some(())
}

/// Reads `NAME{LABEL="VALUE",...} NUMBER`.
fn sample(line: &str) -> Option<NamedSample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, behind) = rest.split_once("=\"")?;
            let end = end_of_value(behind)?;
            labels.push((label, unescaped(&behind[..end])));
            rest = &behind[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let number = rest.strip_prefix(' ')?;
    number.parse::<f64>().ok()?;
    (!name.is_empty()).then_some(NamedSample {
        name,
        labels,
        number,
    })
}

/// Returns the place of the quotation mark that ends a value.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut characters) = (String::with_capacity(text.len()), text.chars());
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => plain.push('\n'),
                Some(other @ ('"' | '\\')) => plain.push(other),
                other => plain.extend(['\\'].into_iter().chain(other)),
            },
            (character, false) => plain.push(character),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<SampleDocument<'_>, String> {
        pieces(text.as_bytes(), usize::MAX)?
            .next()
            .unwrap_or_else(|| Ok(SampleDocument::default()))
    }

    /// All pieces together are the document, and each family in a piece has points.
    #[test]
    fn pieces_are_the_document() {
        let text = "# TYPE a counter\n# HELP a The a.\na_total{k=\"1\"} 1\na_total{k=\"2\"} 2\na_total{k=\"3\"} 3\n\
                    # TYPE b histogram\n# UNIT b seconds\nb_bucket{k=\"1\",le=\"1.0\"} 1\nb_bucket{k=\"1\",le=\"+Inf\"} 2\n\
                    b_count{k=\"1\"} 2\nb_bucket{k=\"2\",le=\"+Inf\"} 2\n# TYPE c gauge\nc 7\n# EOF\n";
        let expected = whole(text).unwrap();
        for points in 1..8 {
            let mut together = SampleDocument::default();
            for piece in pieces(text.as_bytes(), points).unwrap() {
                let mut families = piece.unwrap().families;
                let counts: Vec<usize> =
                    families.iter().map(|family| family.points.len()).collect();
                assert!(
                    !counts.contains(&0) && counts.iter().sum::<usize>() <= points,
                    "{points}: {counts:?}"
                );
                let continued = together
                    .families
                    .last_mut()
                    .filter(|last| last.head() == families[0].head());
                if let Some(last) = continued {
                    last.points.append(&mut families.remove(0).points);
                }
                together.families.append(&mut families);
            }
            assert_eq!(together, expected, "{points}");
        }
    }

    #[test]
    fn families_have_their_points() {
        let text = "# TYPE twinprobe_probe info\n# HELP twinprobe_probe Where \\\"it\\\" runs.\n\
                    twinprobe_probe_info{probe=\"p\",node=\"a \\\"b\\\"\\\\\\n{c},d=\\\"\"} 1\n\
                    # TYPE flow_bytes counter\nflow_bytes_total{probe=\"p\",key=\"\"} 18446744073709551615\n\
                    flow_bytes_total{probe=\"p\",key=\"x\"} 0.000000001\n\
                    # TYPE size_bytes gaugehistogram\nsize_bytes_bucket{cpu=\"0\",le=\"1.0\"} 1\n\
                    size_bytes_bucket{cpu=\"0\",le=\"+Inf\"} 3\nsize_bytes_gsum{cpu=\"0\"} 7\n\
                    size_bytes_bucket{cpu=\"1\",le=\"+Inf\"} 0\n# EOF\n";
        let found = whole(text).unwrap();
        let shown: Vec<(&str, Vec<usize>)> = found
            .families
            .iter()
            .map(|family| {
                (
                    family.name,
                    family
                        .points
                        .iter()
                        .map(|point| point.samples.len())
                        .collect(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("twinprobe_probe", vec![1]),
                ("flow_bytes", vec![1, 1]),
                ("size_bytes", vec![3, 1])
            ]
        );
        let info = &found.families[0];
        assert_eq!(
            (&*info.help, info.kind),
            ("Where \"it\" runs.", SampleKind::Info)
        );
        assert_eq!(
            info.points[0].samples[0].label("node"),
            Some("a \"b\"\\\n{c},d=\"")
        );
        let flow = &found.families[1].points[0].samples[0];
        assert_eq!(
            (flow.number, flow.label("key"), flow.label("no")),
            ("18446744073709551615", Some(""), None)
        );
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in [
            "",
            "# TYPE a gauge\na 1\n",
            "a 1\n# EOF\n",
            "# TYPE a gauge\na{b=\"c} 1\n# EOF\n",
            "# TYPE a gauge\na{b=\"c\"} one\n# EOF\n",
            "# TYPE a smoke\n# EOF\n",
            "# TYPE a gauge\nb 1\n# EOF\n",
        ] {
            whole(text).unwrap_err();
        }
    }
}
