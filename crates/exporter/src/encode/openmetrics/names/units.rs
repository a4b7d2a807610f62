//! The base units of OpenMetrics and Prometheus: seconds and bytes (and shannons, of entropies). A
//! name with another unit is renamed to its base unit. The encoder converts the numbers; integers
//! stay exact to the last digit.

use std::io::Write as _;

use twinprobe_ebpf_common::Context;
use twinprobe_ebpf_common::field::kind::LeafKind;

use crate::encode::openmetrics::text::{integer, number};

/// The part of a name that marks the number as a time.
const TIMESTAMP: &str = "timestamp_seconds";
/// The power of ten of a nanosecond, the unit in which times are stored.
const NANO: i8 = -9;

/// The factor from a number to its base unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A power of ten; 0 for base units and for numbers without a unit.
    Decimal(i8),
    /// A power of two.
    Binary(u8),
    /// The conversion of nanoseconds since the boot of the machine to seconds since 1970.
    SinceBoot,
}

impl Scale {
    /// The factor from nanoseconds to seconds.
    pub const NANO: Self = Self::Decimal(NANO);
}

/// The units that are not base units, by the names in Prometheus' linter.
const UNITS: [(&str, &str, Scale); 12] = [
    ("nanoseconds", "seconds", Scale::Decimal(-9)),
    ("microseconds", "seconds", Scale::Decimal(-6)),
    ("milliseconds", "seconds", Scale::Decimal(-3)),
    ("kilobytes", "bytes", Scale::Decimal(3)),
    ("megabytes", "bytes", Scale::Decimal(6)),
    ("gigabytes", "bytes", Scale::Decimal(9)),
    ("terabytes", "bytes", Scale::Decimal(12)),
    ("kibibytes", "bytes", Scale::Binary(10)),
    ("mebibytes", "bytes", Scale::Binary(20)),
    ("gibibytes", "bytes", Scale::Binary(30)),
    ("tebibytes", "bytes", Scale::Binary(40)),
    // The bit of information theory (ISO 80000-13). Prometheus treats the word `bits` as a wrong
    // name of bytes.
    ("millibits", "shannons", Scale::Decimal(-3)),
];

/// Returns the name with its base unit, and the factor of the numbers.
pub fn in_base_units(name: &str) -> (String, Scale) {
    let parts = || name.split('_');
    let unit = |part: &str| UNITS.iter().find(|(unit, ..)| *unit == part);
    // A rate has two units, and a program can't see in the name which one divides the other.
    let mut found = parts().filter_map(unit);
    let (Some((unit, base, scale)), None) = (found.next(), found.next()) else {
        return (name.to_owned(), Scale::Decimal(0));
    };
    let parts: Vec<&str> = parts()
        .map(|part| if part == *unit { *base } else { part })
        .collect();
    (parts.join("_"), *scale)
}

/// Returns the name of a time, which is exported as seconds since 1970.
pub fn as_timestamp(name: &str) -> String {
    let (name, _) = in_base_units(name);
    let stem = name.strip_suffix("_seconds").unwrap_or(&name);
    let stem = stem.strip_suffix("_timestamp").unwrap_or(stem);
    format!("{stem}_{TIMESTAMP}")
}

impl Scale {
    /// Returns a bound of a bucket in base units.
    pub fn of_bound(self, bound: f64) -> f64 {
        match self {
            // The quotient of two exact numbers is the float nearest to the decimal fraction, while
            // a product may not be.
            Self::Decimal(power @ ..0) => bound / 10_f64.powi(-i32::from(power)),
            Self::Decimal(power) => bound * 10_f64.powi(power.into()),
            Self::Binary(power) => bound * 2_f64.powi(power.into()),
            Self::SinceBoot => bound,
        }
    }

    /// Appends a number of this kind and size in base units, from the bits that a leaf loads.
    pub fn push(
        self,
        out: &mut Vec<u8>,
        (kind, size): (LeafKind, usize),
        bits: u128,
        context: &Context,
    ) {
        match (self, kind) {
            (Self::Decimal(0), _) => number(out, kind, size, bits),
            (Self::SinceBoot, LeafKind::Number { .. }) => {
                let (negative, time) = sum(context.boot_time_ns, bits);
                shifted(out, negative, time, NANO);
            }
            (_, LeafKind::Float) => {
                let scaled = self.of_bound(f64::from_bits(bits as u64));
                number(out, kind, 8, scaled.to_bits().into());
            }
            (Self::Decimal(power), LeafKind::Number { signed, .. }) => {
                let negative = signed && bits.cast_signed() < 0;
                let magnitude = if negative { bits.wrapping_neg() } else { bits };
                shifted(out, negative, magnitude, power);
            }
            (Self::Binary(power), LeafKind::Number { signed: true, .. }) => {
                integer(out, bits.cast_signed().saturating_mul(1 << power));
            }
            (Self::Binary(power), LeafKind::Number { .. }) => {
                integer(out, bits.saturating_mul(1 << power));
            }
            (_, LeafKind::Bool) => number(out, kind, size, bits),
        }
    }
}

/// Returns the time as its sign and its magnitude.
fn sum(boot: i128, since: u128) -> (bool, u128) {
    let time = boot.saturating_add(i128::try_from(since).unwrap_or(i128::MAX));
    (time < 0, time.unsigned_abs())
}

/// Appends a decimal number with a moved decimal point. Unlike a float, this loses no digit.
fn shifted(out: &mut Vec<u8>, negative: bool, magnitude: u128, power: i8) {
    if negative {
        out.push(b'-');
    }
    let start = out.len();
    integer(out, magnitude);
    if power >= 0 {
        if magnitude != 0 {
            out.resize(out.len() + usize::from(power.unsigned_abs()), b'0');
        }
        return;
    }
    let places = usize::from(power.unsigned_abs());
    let digits = out.split_off(start);
    // At least one digit is before the point. Writing to a Vec does not fail.
    let _ = write!(
        out,
        "{:0>width$}",
        String::from_utf8_lossy(&digits),
        width = places + 1
    );
    out.insert(out.len() - places, b'.');
    while out.ends_with(b"0") {
        out.pop();
    }
    if out.ends_with(b".") {
        out.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(scale: Scale, signed: bool, bits: u128) -> String {
        let (mut out, context) = (
            Vec::new(),
            Context {
                boot_time_ns: 1_000,
                ..Context::default()
            },
        );
        scale.push(
            &mut out,
            (
                LeafKind::Number {
                    signed,
                    swapped: false,
                },
                8,
            ),
            bits,
            &context,
        );
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn names_say_base_units() {
        for (name, base, scale) in [
            ("latency_nanoseconds", "latency_seconds", Scale::Decimal(-9)),
            (
                "server_milliseconds_max",
                "server_seconds_max",
                Scale::Decimal(-3),
            ),
            ("kilobytes", "bytes", Scale::Decimal(3)),
            (
                "memory_kibibytes_total",
                "memory_bytes_total",
                Scale::Binary(10),
            ),
            ("source_millibits", "source_shannons", Scale::Decimal(-3)),
            ("latency_seconds", "latency_seconds", Scale::Decimal(0)),
            ("latency_ns", "latency_ns", Scale::Decimal(0)),
            (
                "kilobytes_per_milliseconds",
                "kilobytes_per_milliseconds",
                Scale::Decimal(0),
            ),
        ] {
            assert_eq!(in_base_units(name), (base.to_owned(), scale));
        }
        for name in [
            "first",
            "first_nanoseconds",
            "first_seconds",
            "first_timestamp_seconds",
        ] {
            assert_eq!(as_timestamp(name), "first_timestamp_seconds");
        }
    }

    #[test]
    fn integers_keep_each_digit() {
        let nano = Scale::Decimal(-9);
        assert_eq!(written(nano, false, 0), "0");
        assert_eq!(written(nano, false, 1), "0.000000001");
        assert_eq!(written(nano, false, 1_500_000_000), "1.5");
        assert_eq!(
            written(nano, false, u64::MAX.into()),
            "18446744073.709551615"
        );
        assert_eq!(
            written(nano, true, (-25_i128).cast_unsigned()),
            "-0.000000025"
        );
        assert_eq!(written(Scale::Decimal(3), false, 7), "7000");
        assert_eq!(written(Scale::Decimal(3), false, 0), "0");
        assert_eq!(
            written(Scale::Binary(10), true, (-2_i128).cast_unsigned()),
            "-2048"
        );
        assert_eq!(written(Scale::SinceBoot, false, 500), "0.0000015");
    }

    #[test]
    fn bounds_are_the_nearest_numbers() {
        assert_eq!(Scale::Decimal(-9).of_bound(3.0).to_string(), "0.000000003");
        assert_eq!(
            Scale::Decimal(-9).of_bound(4_194_303.0).to_string(),
            "0.004194303"
        );
        assert_eq!(Scale::Binary(10).of_bound(3.0), 3072.0);
    }
}
