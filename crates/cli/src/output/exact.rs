//! JSON whose integers stay exact. Sums may have more than 64 bits, and the parser makes floats of
//! those. Here such an integer is a text that begins with a NUL, which no text of a document does.
//! It becomes a number again where it is written.

use serde_json::Value;

const MARK: char = '\0';
/// The least number of digits of an integer that 64 bits do not hold.
const LONG: usize = 19;

/// An integer: its bits, and whether it is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideInteger {
    pub bits: u128,
    pub is_negative: bool,
}

/// Parses JSON.
pub fn parse(json: &[u8]) -> serde_json::Result<Value> {
    let is_long = json
        .split(|byte| !byte.is_ascii_digit())
        .any(|digits| digits.len() >= LONG);
    if is_long {
        serde_json::from_slice(&marked(json))
    } else {
        serde_json::from_slice(json)
    }
}

/// Returns the JSON with texts in place of the integers that 64 bits do not hold.
fn marked(json: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(json.len()), json);
    while let Some(&first) = rest.first() {
        let length = match first {
            b'"' => text_length(rest),
            b'-' | b'0'..=b'9' => number_length(rest),
            _ => 1,
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        if is_wide(token) {
            out.extend_from_slice(b"\"\\u0000");
            out.extend_from_slice(token);
            out.push(b'"');
        } else {
            out.extend_from_slice(token);
        }
    }
    out
}

/// The length of a text with its quotes.
fn text_length(json: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = json[1..].iter().position(|&byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(json.len(), |end| end + 2)
}

fn number_length(json: &[u8]) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    json.iter()
        .position(|byte| !is_part(byte))
        .unwrap_or(json.len())
}

fn is_wide(token: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(token) else {
        return false;
    };
    token.len() >= LONG
        && text.parse::<u64>().is_err()
        && text.parse::<i64>().is_err()
        && parsed(text).is_some()
}

fn parsed(text: &str) -> Option<WideInteger> {
    match text.parse::<u128>() {
        Ok(bits) => Some(WideInteger {
            bits,
            is_negative: false,
        }),
        Err(_) => text.parse::<i128>().ok().map(|number| WideInteger {
            bits: number.cast_unsigned(),
            is_negative: true,
        }),
    }
}

/// Returns the integer in a value; `None` for any other value.
pub fn integer(value: &Value) -> Option<WideInteger> {
    match value {
        Value::Number(number) => {
            let number = number.as_i128()?;
            Some(WideInteger {
                bits: number.cast_unsigned(),
                is_negative: number < 0,
            })
        }
        Value::String(text) => parsed(text.strip_prefix(MARK)?),
        _ => None,
    }
}

impl From<WideInteger> for Value {
    fn from(WideInteger { bits, is_negative }: WideInteger) -> Self {
        let number = bits.cast_signed();
        match (u64::try_from(bits), i64::try_from(number)) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) if is_negative => number.into(),
            _ if is_negative => format!("{MARK}{number}").into(),
            _ => format!("{MARK}{bits}").into(),
        }
    }
}

/// Returns JSON or YAML with numbers in place of the texts for them.
pub fn written(text: String) -> String {
    let (json, yaml) = ("\"\\u0000", "\"\\0");
    if !text.contains(json) && !text.contains(yaml) {
        return text;
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some(at) = [json, yaml].iter().filter_map(|mark| rest.find(mark)).min() {
        let mark = if rest[at..].starts_with(json) {
            json
        } else {
            yaml
        };
        let digits = rest[at + mark.len()..]
            .split('"')
            .next()
            .unwrap_or_default();
        let is_number = parsed(digits).is_some();
        out.push_str(&rest[..at]);
        out.push_str(if is_number { digits } else { mark });
        rest = &rest[at + mark.len() + if is_number { digits.len() + 1 } else { 0 }..];
    }
    out + rest
}

/// Puts the nearest floats in place of the texts that stand for integers: tables and pictures show
/// few digits.
pub fn rounded(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(rounded),
        Value::Object(fields) => fields.values_mut().for_each(rounded),
        Value::String(text) => {
            if let Some(number) = text
                .strip_prefix(MARK)
                .and_then(|digits| digits.parse::<f64>().ok())
            {
                *value = number.into();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::view::yaml;

    #[test]
    fn integers_of_any_width_stay_as_they_are() {
        let wide = [
            "18446744073709551616",
            "340282366920938463463374607431768211455",
            "-9223372036854775809",
            "-170141183460469231731687303715884105728",
        ];
        for number in wide
            .into_iter()
            .chain(["18446744073709551615", "-9223372036854775808", "0"])
        {
            let json = format!(
                r#"{{"a\"{number}":"{number}","b":[{number},1.5e3],"c":{{"d":{number}}}}}"#
            );
            let value = parse(json.as_bytes()).unwrap();
            assert_eq!(written(value.to_string()), json.replace("1.5e3", "1500.0"));
            assert_eq!(
                Value::from(integer(&value["c"]["d"]).unwrap()),
                value["c"]["d"]
            );
            assert_eq!(integer(&value["b"][1]), None);
            assert!(
                written(yaml(&value)).contains(&format!("d: {number}\n")),
                "{}",
                yaml(&value)
            );
        }
    }

    #[test]
    fn what_is_no_integer_of_128_bits_is_left_alone() {
        for json in [
            r#"["\\u00001234567890123456789012"]"#,
            r#"["12345678901234567890123"]"#,
        ] {
            assert_eq!(written(parse(json.as_bytes()).unwrap().to_string()), json);
        }
        let more = parse(b"[3402823669209384634633746074317682114550]").unwrap();
        assert!(more[0].is_f64(), "{more}");
        assert!(parse(b"[123456789012345678901").is_err());
    }

    #[test]
    fn tables_have_the_nearest_float() {
        let mut value = parse(b"[{\"a\":36893488147419103232}]").unwrap();
        rounded(&mut value);
        assert_eq!(value[0]["a"].as_f64(), Some(36_893_488_147_419_103_232.0));
    }
}
