//! Names, label values and numbers as OpenMetrics writes them.

use std::fmt;
use std::io::Write as _;

use crate::decode::sink::ValueSink;
use crate::encode::fragment::push_number;
use twinprobe_ebpf_common::field::kind::LeafKind;

/// Returns a valid metric name: characters that a name can't contain become `_`.
pub fn metric_name(name: &str) -> String {
    legal(name, in_metric_name)
}

/// Returns a valid label name. Names that begin with `__` stay as they are, although they are
/// reserved.
pub fn label_name(name: &str) -> String {
    legal(name, |c| c.is_ascii_alphanumeric() || c == '_')
}

/// Appends the name of a member to the name of its metric.
pub fn push_name(path: &mut String, name: &str) {
    path.push('_');
    path.extend(
        name.chars()
            .map(|c| if in_metric_name(c) { c } else { '_' }),
    );
}

const fn in_metric_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':')
}

fn legal(name: &str, allowed: impl Fn(char) -> bool) -> String {
    let mut legal: String = name
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    if !legal.starts_with(|c: char| !c.is_ascii_digit()) {
        legal.insert(0, '_');
    }
    legal
}

/// Appends text that is in the quotes of a label value or in `# HELP`: both escape the same
/// characters.
pub fn escaped(out: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            _ => out.push(byte),
        }
    }
}

/// Appends a number in the form of [`Leaf::load`](twinprobe_ebpf_common::field::leaf::Leaf::load);
/// `size` is the leaf's size in bytes.
pub fn number(out: &mut Vec<u8>, kind: LeafKind, size: usize, bits: u128) {
    match kind {
        LeafKind::Number { signed: true, .. } => integer(out, bits.cast_signed()),
        LeafKind::Number { .. } | LeafKind::Bool => match u64::try_from(bits) {
            Ok(small) => push_number(out, small),
            Err(_) => integer(out, bits),
        },
        LeafKind::Float => {
            let value = f64::from_bits(bits as u64);
            if size == 4 {
                Labels(out).float(value, format_args!("{:?}", value as f32));
            } else {
                Labels(out).float(value, format_args!("{value:?}"));
            }
        }
    }
}

/// Appends an integer.
pub fn integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the bound of a bucket, in the canonical form of the specification: `7.0`,
/// `1.048575e+06`, `3e-09`.
pub fn bound(out: &mut Vec<u8>, bound: f64) {
    // Writing to a Vec does not fail.
    let _ = if (1e-4..1e6).contains(&bound) {
        write!(out, "{bound:?}")
    } else {
        let text = format!("{bound:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent
            .strip_prefix('-')
            .map_or(('+', exponent), |digits| ('-', digits));
        write!(out, "{mantissa}e{sign}{exponent:0>2}")
    };
}

/// A sink that writes scalars as label values. Structs and arrays are split before.
pub struct Labels<'a>(pub &'a mut Vec<u8>);

impl Labels<'_> {
    fn push(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }
}

impl ValueSink for Labels<'_> {
    type Label = String;

    fn label(name: &str) -> String {
        name.to_owned()
    }

    fn unsigned(&mut self, value: u64) {
        push_number(self.0, value);
    }

    fn signed(&mut self, value: i64) {
        integer(self.0, value);
    }

    fn integer(&mut self, digits: &str) {
        self.push(digits);
    }

    fn float(&mut self, value: f64, text: fmt::Arguments<'_>) {
        if value.is_nan() {
            self.push("NaN");
        } else if value.is_infinite() {
            self.push(if value > 0.0 { "+Inf" } else { "-Inf" });
        } else {
            // Writing to a Vec does not fail.
            let _ = self.0.write_fmt(text);
        }
    }

    fn boolean(&mut self, value: bool) {
        self.push(if value { "true" } else { "false" });
    }

    fn text(&mut self, value: &str) {
        escaped(self.0, value);
    }

    fn plain(&mut self, value: &[u8]) {
        self.0.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_legal() {
        let names = ["a:b", "0x", "", "$a\u{e4}", "_"];
        assert_eq!(names.map(metric_name), ["a:b", "_0x", "_", "_a_", "_"]);
        assert_eq!(names.map(label_name), ["a_b", "_0x", "_", "_a_", "_"]);
    }

    #[test]
    fn bounds_are_canonical() {
        let text = |number| {
            let mut out = Vec::new();
            bound(&mut out, number);
            String::from_utf8(out).expect("ASCII")
        };
        let bounds = [
            1.0,
            524_287.0,
            1_048_575.0,
            18_446_744_073_709_551_616.0,
            1.023e-6,
            0.004_194_303,
        ];
        let expected = [
            "1.0",
            "524287.0",
            "1.048575e+06",
            "1.8446744073709552e+19",
            "1.023e-06",
            "0.004194303",
        ];
        assert_eq!(bounds.map(text), expected);
    }
}
