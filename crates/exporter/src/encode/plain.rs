//! The text format of Prometheus, version 0.0.4, made from OpenMetrics. The samples stay the same.
//! The types, and the names in the metadata, differ.

use std::sync::Arc;

use twinprobe_ebpf_common::RawTable;

use super::openmetrics::names::family::TOTAL;
use crate::encode::encoder::DocumentEncoder;
use crate::metric::Metric;

/// The conversion of a page, line by line. Each given part of the page has whole lines.
#[derive(Debug, Default)]
pub struct Plain {
    /// The name in OpenMetrics of a family whose type is not known yet, and the text of its help.
    help: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in OpenMetrics of the current family, and the suffix of its name in this format.
    family: (Vec<u8>, &'static str),
    /// True for a histogram of a window, whose count and sum have other names here.
    is_gauge_histogram: bool,
}

impl Plain {
    /// Converts the part of `out` from `start` on.
    pub fn convert(&mut self, start: usize, out: &mut Vec<u8>) {
        let page = out.split_off(start);
        for line in page.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_prefix(b"# ") {
                Some(metadata) => self.metadata(metadata.trim_ascii_end(), out),
                None => self.sample(line, out),
            }
        }
    }

    fn metadata(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let (keyword, name) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        let rest = parts.next().unwrap_or_default();
        match keyword {
            b"TYPE" => {
                let (kind, ending) = described(rest);
                self.is_gauge_histogram = rest == b"gaugehistogram";
                self.family = (
                    name.to_owned(),
                    if name.ends_with(ending.as_bytes()) {
                        ""
                    } else {
                        ending
                    },
                );
                if let Some((of, text)) = self.help.take_if(|(of, _)| of == name) {
                    self.help(&of, &text, out);
                }
                push(
                    out,
                    &[
                        b"# TYPE ",
                        name,
                        self.family.1.as_bytes(),
                        b" ",
                        kind,
                        b"\n",
                    ],
                );
            }
            b"HELP" if self.family.0 == name => self.help(name, rest, out),
            b"HELP" => self.help = Some((name.to_owned(), rest.to_owned())),
            // `# UNIT` and `# EOF` are not known here.
            _ => {}
        }
    }

    fn sample(&self, line: &[u8], out: &mut Vec<u8>) {
        let base = &*self.family.0;
        let ending = if self.is_gauge_histogram {
            line.strip_prefix(base)
        } else {
            None
        };
        match ending.and_then(|ending| ending.strip_prefix(b"_g")) {
            Some(rest) if rest.starts_with(b"count{") || rest.starts_with(b"sum{") => {
                push(out, &[base, b"_", rest]);
            }
            _ => out.extend_from_slice(line),
        }
    }

    /// Writes a help, whose quotes are not escaped here.
    fn help(&self, name: &[u8], text: &[u8], out: &mut Vec<u8>) {
        push(out, &[b"# HELP ", name, self.family.1.as_bytes(), b" "]);
        let mut rest = text;
        while let [first, next @ ..] = rest {
            match (first, next) {
                (b'\\', [b'"', next @ ..]) => {
                    out.push(b'"');
                    rest = next;
                }
                (b'\\', [escaped, next @ ..]) => {
                    out.extend_from_slice(&[b'\\', *escaped]);
                    rest = next;
                }
                (byte, next) => {
                    out.push(*byte);
                    rest = next;
                }
            }
        }
        out.push(b'\n');
    }
}

/// Returns the type in this format for a type of OpenMetrics, and the suffix of its samples' names.
const fn described(kind: &[u8]) -> (&'static [u8], &'static str) {
    match kind {
        b"counter" => (b"counter", TOTAL),
        b"histogram" | b"gaugehistogram" => (b"histogram", ""),
        b"summary" => (b"summary", ""),
        b"info" => (b"gauge", "_info"),
        b"gauge" | b"stateset" => (b"gauge", ""),
        _ => (b"untyped", ""),
    }
}

fn push(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A document in this format.
pub struct PlainDocument<E> {
    document: E,
    plain: Plain,
}

impl<E> PlainDocument<E> {
    pub fn new(document: E) -> Self {
        Self {
            document,
            plain: Plain::default(),
        }
    }

    fn convert<T>(
        &mut self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut E, &mut Vec<u8>) -> T,
    ) -> T {
        let start = out.len();
        let answer = write(&mut self.document, out);
        self.plain.convert(start, out);
        answer
    }
}

impl<E: DocumentEncoder> DocumentEncoder for PlainDocument<E> {
    fn skipped_before(&mut self, skipped: u64) {
        self.document.skipped_before(skipped);
    }

    fn add_metric(&mut self, metric: &Arc<Metric>) {
        self.document.add_metric(metric);
    }

    fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.convert(out, E::next_table)
    }

    fn asks_again(&self) -> bool {
        self.document.asks_again()
    }

    fn rows(&mut self, table: &RawTable, out: &mut Vec<u8>) {
        self.convert(out, |document, out| document.rows(table, out));
    }

    fn more(&mut self, out: &mut Vec<u8>) -> bool {
        self.convert(out, E::more)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> u64 {
        self.convert(out, E::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_names_are_those_of_prometheus() {
        let page = "# HELP a Of \\\"a\\\"\\n\n# TYPE a counter\na_total 1\n# TYPE b unknown\n# HELP b \\\\\"\nb{x=\"# TYPE\"} 2\n\
                    # TYPE c info\n# HELP c C\nc_info 1\n# TYPE d gaugehistogram\n# UNIT d seconds\nd_bucket{le=\"+Inf\"} 1\nd_gcount{x=\"y\"} 1\nd_gsum{} 2\n# EOF\n";
        let expected = "# HELP a_total Of \"a\"\\n\n# TYPE a_total counter\na_total 1\n# TYPE b untyped\n# HELP b \\\\\"\n\
                        b{x=\"# TYPE\"} 2\n# TYPE c_info gauge\n# HELP c_info C\nc_info 1\n# TYPE d histogram\n\
                        d_bucket{le=\"+Inf\"} 1\nd_count{x=\"y\"} 1\nd_sum{} 2\n";
        let lines: Vec<&str> = page.split_inclusive('\n').collect();
        for size in [1, lines.len()] {
            let (mut plain, mut out) = (Plain::default(), b"before\n".to_vec());
            for part in lines.chunks(size) {
                let start = out.len();
                out.extend_from_slice(part.concat().as_bytes());
                plain.convert(start, &mut out);
            }
            assert_eq!(
                String::from_utf8(out).expect("UTF-8"),
                format!("before\n{expected}")
            );
        }
    }
}
