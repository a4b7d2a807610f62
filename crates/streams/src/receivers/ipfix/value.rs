//! Values of documents, encoded as the octets of records. Numbers are exact: a value that does not
//! fit is reported, and never rounded.

use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use serde_json::Value;
use twinprobe_ebpf_common::field::names;
use twinprobe_ebpf_common::window::shape::FieldContent;

use super::element::ElementType;

/// The seconds from 1900, where NTP's time begins, to 1970.
const NTP_TO_UNIX: i64 = 2_208_988_800;
const NANOSECONDS: i128 = 1_000_000_000;
const NANOSECONDS_PER_MILLISECOND: i128 = 1_000_000;

/// Adds the value to a record. Returns false if the element can't hold the value; then the record
/// has a zero, or nothing.
pub fn put(out: &mut Vec<u8>, kind: ElementType, content: &FieldContent, value: &Value) -> bool {
    let before = out.len();
    if put_value(out, kind, content, value).is_some() {
        return true;
    }
    out.truncate(before);
    put_nothing(out, kind);
    false
}

/// Adds the octets that stand for a missing value.
pub fn put_nothing(out: &mut Vec<u8>, kind: ElementType) {
    match kind {
        ElementType::Octets(None) | ElementType::Text => put_variable(out, &[]),
        ElementType::Float32 => out.extend(f32::NAN.to_be_bytes()),
        ElementType::Float64 => out.extend(f64::NAN.to_be_bytes()),
        kind => out.resize(out.len() + usize::from(kind.length()), 0),
    }
}

/// Adds octets after their length (RFC 7011, section 7).
pub fn put_variable(out: &mut Vec<u8>, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(length @ ..=254) => out.push(length),
        _ => {
            out.push(255);
            out.extend((bytes.len() as u16).to_be_bytes());
        }
    }
    out.extend(bytes);
}

/// The most octets of a field, far below the limit of a message.
const LONGEST: usize = 60_000;

fn put_value(
    out: &mut Vec<u8>,
    kind: ElementType,
    content: &FieldContent,
    value: &Value,
) -> Option<()> {
    match kind {
        ElementType::Unsigned8
        | ElementType::Unsigned16
        | ElementType::Unsigned32
        | ElementType::Unsigned64 => {
            let length = usize::from(kind.length());
            let bytes = unsigned(content, value)?.to_be_bytes();
            let (above, bytes) = bytes.split_at(8 - length);
            above
                .iter()
                .all(|byte| *byte == 0)
                .then(|| out.extend(bytes))
        }
        ElementType::Signed8
        | ElementType::Signed16
        | ElementType::Signed32
        | ElementType::Signed64 => {
            let length = usize::from(kind.length());
            let number = value.as_i64()?;
            let unused = 64 - 8 * length as u32;
            ((number << unused) >> unused == number)
                .then(|| out.extend(&number.to_be_bytes()[8 - length..]))
        }
        ElementType::Float32 => {
            number(value).map(|number| out.extend((number as f32).to_be_bytes()))
        }
        ElementType::Float64 => number(value).map(|number| out.extend(number.to_be_bytes())),
        // IPFIX encodes "true" as 1 and "false" as 2.
        ElementType::Boolean => value
            .as_bool()
            .map(|value| out.push(if value { 1 } else { 2 })),
        ElementType::Mac => mac(value.as_str()?).map(|bytes| out.extend(bytes)),
        ElementType::Milliseconds => nanoseconds(value).and_then(|time| {
            u64::try_from(time.div_euclid(NANOSECONDS_PER_MILLISECOND))
                .ok()
                .map(|time| out.extend(time.to_be_bytes()))
        }),
        ElementType::Nanoseconds => {
            nanoseconds(value).map(|time| out.extend(ntp(time).to_be_bytes()))
        }
        ElementType::Ipv4 => {
            let address = value.as_str()?.parse::<Ipv4Addr>().ok();
            address.map(|address| out.extend(address.octets()))
        }
        ElementType::Ipv6 => {
            let address = value.as_str()?.parse::<Ipv6Addr>().ok();
            address.map(|address| out.extend(address.octets()))
        }
        ElementType::Octets(length) => octets(out, length, value.as_str()?),
        ElementType::Text => text(out, value),
    }
}

/// Returns the number in a value. The value may be the name of the number instead.
fn unsigned(content: &FieldContent, value: &Value) -> Option<u64> {
    match (content, value) {
        (FieldContent::Name { names }, Value::String(text)) => names
            .iter()
            .find(|name| name.name == *text)
            .map(|name| name.value),
        (FieldContent::Flags { flags }, Value::String(text)) => names::flags_of(flags, text),
        (_, value) => value.as_u64(),
    }
}

/// JSON has no NaN and no infinity: documents have null instead.
fn number(value: &Value) -> Option<f64> {
    if value.is_null() {
        Some(f64::NAN)
    } else {
        value.as_f64()
    }
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

/// Returns a time in nanoseconds since 1970. 0 means "never".
fn nanoseconds(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => text.parse::<Timestamp>().ok().map(Timestamp::as_nanosecond),
        Value::Number(number) if number.as_u64() == Some(0) => Some(0),
        _ => None,
    }
}

/// Returns a time as NTP writes it: seconds since 1900, and their fraction in units of 2^-32
/// seconds. A reader that rounds down to nanoseconds gets the same nanosecond. "Never" stays 0.
fn ntp(nanoseconds: i128) -> u64 {
    if nanoseconds == 0 {
        return 0;
    }
    let seconds = nanoseconds.div_euclid(NANOSECONDS) as i64 + NTP_TO_UNIX;
    let fraction = ((nanoseconds.rem_euclid(NANOSECONDS) << 32) + NANOSECONDS - 1) / NANOSECONDS;
    (seconds.cast_unsigned() << 32) | fraction as u64
}

fn octets(out: &mut Vec<u8>, length: Option<u16>, text: &str) -> Option<()> {
    let digits = text.strip_prefix("0x")?;
    let bytes = (0..digits.len())
        .step_by(2)
        .map(|at| {
            digits
                .get(at..at + 2)
                .and_then(|byte| u8::from_str_radix(byte, 16).ok())
        })
        .collect::<Option<Vec<u8>>>()?;
    match length {
        Some(length) => (bytes.len() == usize::from(length)).then(|| out.extend(bytes)),
        None => (bytes.len() <= LONGEST).then(|| put_variable(out, &bytes)),
    }
}

fn text(out: &mut Vec<u8>, value: &Value) -> Option<()> {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    (text.len() <= LONGEST).then(|| put_variable(out, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn encoded(kind: ElementType, value: &Value) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let fits = put(&mut out, kind, &FieldContent::Unsigned { bits: 64 }, value);
        let length = kind.length();
        assert!(
            length == 65535 || out.len() == usize::from(length),
            "{kind:?}: {out:?}"
        );
        fits.then_some(out)
    }

    #[test]
    fn integers_are_exact_or_refused() {
        assert_eq!(
            encoded(ElementType::Unsigned64, &json!(u64::MAX)),
            Some(vec![255; 8])
        );
        assert_eq!(
            encoded(ElementType::Unsigned16, &json!(65_535)),
            Some(vec![255, 255])
        );
        assert_eq!(encoded(ElementType::Unsigned16, &json!(65_536)), None);
        assert_eq!(encoded(ElementType::Signed8, &json!(-128)), Some(vec![128]));
        assert_eq!(encoded(ElementType::Signed8, &json!(-129)), None);
        assert_eq!(
            encoded(ElementType::Signed64, &json!(i64::MIN)),
            Some(vec![128, 0, 0, 0, 0, 0, 0, 0])
        );
        assert_eq!(encoded(ElementType::Unsigned64, &json!(1e30)), None);
    }

    #[test]
    fn times_are_those_of_ntp_and_unix() {
        let time = json!("2026-11-26T21:00:00.123456789Z");
        let milliseconds = encoded(ElementType::Milliseconds, &time).unwrap();
        assert_eq!(
            u64::from_be_bytes(milliseconds.try_into().unwrap()),
            1_795_726_800_123
        );
        let ntp = u64::from_be_bytes(
            encoded(ElementType::Nanoseconds, &time)
                .unwrap()
                .try_into()
                .unwrap(),
        );
        assert_eq!((ntp >> 32) as i64 - NTP_TO_UNIX, 1_795_726_800);
        assert_eq!(((ntp & 0xffff_ffff) * 1_000_000_000) >> 32, 123_456_789);
        assert_eq!(
            encoded(ElementType::Nanoseconds, &json!(0)),
            Some(vec![0; 8])
        );
    }

    #[test]
    fn names_become_their_numbers() {
        let names = FieldContent::Name {
            names: vec![twinprobe_ebpf_common::window::shape::ValueName {
                value: 17,
                name: "UDP".into(),
            }],
        };
        let flags = FieldContent::Flags {
            flags: names::TCP_FLAGS.map(str::to_owned).into(),
        };
        for value in [json!("SYN|ACK"), json!(18)] {
            let mut out = Vec::new();
            assert!(put(&mut out, ElementType::Unsigned16, &flags, &value));
            assert_eq!(out, [0, 18]);
        }
        for value in [json!("UDP"), json!(17)] {
            let mut out = Vec::new();
            assert!(put(&mut out, ElementType::Unsigned8, &names, &value));
            assert_eq!(out, [17]);
        }
    }

    #[test]
    fn long_texts_have_long_lengths() {
        assert_eq!(
            encoded(ElementType::Text, &json!("ab")),
            Some(vec![2, b'a', b'b'])
        );
        let long = encoded(ElementType::Text, &json!("x".repeat(300))).unwrap();
        assert_eq!((&long[..3], long.len()), (&[255, 1, 44][..], 303));
        assert_eq!(
            encoded(ElementType::Octets(Some(2)), &json!("0x01ff")),
            Some(vec![1, 255])
        );
        assert_eq!(
            encoded(ElementType::Octets(Some(3)), &json!("0x01ff")),
            None
        );
        assert_eq!(
            encoded(ElementType::Mac, &json!("02:00:00:00:0b:ad")),
            Some(vec![2, 0, 0, 0, 0x0b, 0xad])
        );
    }
}
