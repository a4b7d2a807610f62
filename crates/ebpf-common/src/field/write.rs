//! The writing of values from a configuration into bytes. The values have the form of documents.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value};

use crate::field::names;
use crate::field::prefix::Prefix;
use crate::layout::{EnumVariant, Layout, Member, Render, Shape};

/// Writes `value` into the bytes of a variable with this layout. Fields of a struct that are
/// missing in the value keep their content. The error names the part of the value and what is valid
/// there.
///
/// # Errors
///
/// Fails if the value does not fit the layout, in type or range. Some bytes may be changed then.
pub fn write(layout: &Layout, value: &Value, bytes: &mut [u8]) -> Result<(), String> {
    at(layout, value, bytes, "")
}

fn at(layout: &Layout, value: &Value, bytes: &mut [u8], path: &str) -> Result<(), String> {
    let refuse = |what: &str| Err(format!("{}{value} does not fit; {what}", prefix(path)));
    let bytes = bytes
        .get_mut(..layout.size)
        .ok_or_else(|| format!("{}there are too few bytes", prefix(path)))?;
    if let (Some(Render::Prefix), Value::String(text)) = (layout.render, value)
        && let Some(parts) = Prefix::of(layout)
    {
        let needed = "a prefix such as 10.0.0.0/8 is needed";
        return parts.write(text, bytes).map_or_else(|| refuse(needed), Ok);
    }
    if let Some(rendered) = layout
        .render
        .and_then(|render| rendered(render, value, bytes))
    {
        return rendered.or_else(|what| refuse(&what));
    }
    match (&layout.shape, value) {
        (Shape::Bool, Value::Bool(is)) => bytes.fill_with_first(u8::from(*is)),
        (Shape::Bool, _) => return refuse("true or false is needed"),
        (Shape::Int { signed }, _) => {
            integer(value, *signed, bytes).or_else(|what| refuse(&what))?;
        }
        (Shape::Char, Value::String(text)) if text.len() == 1 => {
            bytes.copy_from_slice(text.as_bytes());
        }
        (Shape::Char, _) => return refuse("a text of one byte is needed"),
        (Shape::Float, _) => float(value, bytes).or_else(|what| refuse(&what))?,
        (Shape::Enum { signed, variants }, Value::String(name)) => {
            named(name, variants, *signed, bytes).or_else(|what| refuse(&what))?;
        }
        (Shape::Enum { signed, .. }, _) => {
            integer(value, *signed, bytes).or_else(|what| refuse(&what))?;
        }
        (Shape::Array { element, len }, Value::String(text)) if element.shape == Shape::Char => {
            if text.len() > *len {
                return refuse(&format!("the limit is {len} bytes"));
            }
            bytes.fill(0);
            bytes[..text.len()].copy_from_slice(text.as_bytes());
        }
        (Shape::Array { element, len }, Value::Array(values)) if values.len() == *len => {
            elements(element, values, bytes, path)?;
        }
        (Shape::Array { len, .. }, _) => {
            return refuse(&format!("a list of {len} values is needed"));
        }
        (Shape::Struct(members) | Shape::Union(members), Value::Object(fields)) => {
            object(members, fields, bytes, path)?;
        }
        (Shape::Struct(_) | Shape::Union(_), _) => return refuse("an object of fields is needed"),
        (Shape::Opaque, Value::String(text)) => hex(text, bytes).or_else(|what| refuse(&what))?,
        (Shape::Opaque, _) => {
            return refuse("its type is unknown: 0x and two digits a byte are needed");
        }
    }
    Ok(())
}

/// Writes each value of a list into the element with its index.
fn elements(
    element: &Layout,
    values: &[Value],
    bytes: &mut [u8],
    path: &str,
) -> Result<(), String> {
    for (index, value) in values.iter().enumerate() {
        let bytes = &mut bytes[index * element.size..];
        at(element, value, bytes, &format!("{path}[{index}]"))?;
    }
    Ok(())
}

/// Writes each value of an object into the member with its name.
fn object(
    members: &[Member],
    fields: &Map<String, Value>,
    bytes: &mut [u8],
    path: &str,
) -> Result<(), String> {
    for (name, value) in fields {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let Some(member) = members.iter().find(|member| member.name == *name) else {
            let known: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            return Err(format!(
                "there is no field {path}; known are {}",
                known.join(", ")
            ));
        };
        field(member, value, bytes, &path)?;
    }
    Ok(())
}

/// Writes the number that has a name.
fn named(
    name: &str,
    variants: &[EnumVariant],
    signed: bool,
    bytes: &mut [u8],
) -> Result<(), String> {
    let Some(variant) = variants.iter().find(|variant| variant.name == name) else {
        let known: Vec<&str> = variants
            .iter()
            .map(|variant| variant.name.as_str())
            .collect();
        return Err(format!("known are {}", known.join(", ")));
    };
    let number = if signed {
        Value::from(variant.value.cast_signed())
    } else {
        variant.value.into()
    };
    integer(&number, signed, bytes)
}

fn field(member: &Member, value: &Value, bytes: &mut [u8], path: &str) -> Result<(), String> {
    let Some(width) = member.bitfield else {
        return at(
            &member.layout,
            value,
            bytes.get_mut(member.bit_offset / 8..).unwrap_or_default(),
            path,
        );
    };
    // The bits belong to a number that begins at the field's first byte.
    let mut number = [0; 16];
    let size = member.layout.size.min(number.len());
    at(&member.layout, value, &mut number[..size], path)?;
    let number = u128::from_le_bytes(number);
    let signed = matches!(member.layout.shape, Shape::Int { signed: true });
    let limit = 1_u128 << (u32::from(width) - u32::from(signed));
    if number >= limit {
        return Err(format!(
            "{}{value} does not fit; it has {width} bits",
            prefix(path)
        ));
    }
    for bit in 0..usize::from(width) {
        let place = member.bit_offset + bit;
        let byte = bytes
            .get_mut(place / 8)
            .ok_or_else(|| format!("{}there are too few bytes", prefix(path)))?;
        let mask = 1 << (place % 8);
        *byte = if number >> bit & 1 == 1 {
            *byte | mask
        } else {
            *byte & !mask
        };
    }
    Ok(())
}

fn prefix(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("{path}: ")
    }
}

/// Writes a value with a rendering; `None` if the rendering does not change how a number or a text
/// is written.
fn rendered(render: Render, value: &Value, bytes: &mut [u8]) -> Option<Result<(), String>> {
    let text = value.as_str();
    let written = match (render, text) {
        (Render::Ipv4 | Render::Ipv6 | Render::Ip, text) => {
            text.and_then(|text| address(text, bytes))
        }
        (Render::Mac, text) => text.and_then(|text| mac(text, bytes)),
        (Render::Protocol, Some(name)) => {
            let known = || "a protocol such as TCP, or its number, is needed".to_owned();
            let number = names::protocol(name).ok_or_else(known);
            return Some(number.and_then(|number| integer(&number.into(), false, bytes)));
        }
        (Render::TcpFlags, Some(text)) => {
            let known = || {
                format!(
                    "flags such as SYN|ACK, of {}, are needed",
                    names::TCP_FLAGS.join(", ")
                )
            };
            let number = names::flags_of(&names::TCP_FLAGS, text).ok_or_else(known);
            return Some(number.and_then(|number| integer(&number.into(), false, bytes)));
        }
        (Render::Hex, Some(text)) => return Some(hex(text, bytes)),
        (Render::Be16 | Render::Be32 | Render::Be64, _) => {
            return Some(integer(value, false, bytes).map(|()| bytes.reverse()));
        }
        _ => return None,
    };
    let what = if render == Render::Mac {
        "02:00:00:00:00:01"
    } else {
        "an address such as 192.0.2.1"
    };
    Some(written.ok_or_else(|| format!("{what} is needed")))
}

fn address(text: &str, bytes: &mut [u8]) -> Option<()> {
    match (text.parse::<Ipv4Addr>(), bytes.len()) {
        (Ok(address), 4) => bytes.copy_from_slice(&address.octets()),
        (Ok(address), 16) => bytes.copy_from_slice(&address.to_ipv6_mapped().octets()),
        (Err(_), 16) => bytes.copy_from_slice(&text.parse::<Ipv6Addr>().ok()?.octets()),
        _ => return None,
    }
    Some(())
}

fn mac(text: &str, bytes: &mut [u8]) -> Option<()> {
    let parts = text.split(':').map(|part| {
        u8::from_str_radix(part, 16)
            .ok()
            .filter(|_| part.len() == 2)
    });
    let parts: Vec<u8> = parts.collect::<Option<_>>()?;
    (parts.len() == bytes.len()).then(|| bytes.copy_from_slice(&parts))
}

fn hex(text: &str, bytes: &mut [u8]) -> Result<(), String> {
    let wrong = || format!("0x and {} digits are needed", 2 * bytes.len());
    let digits = text
        .strip_prefix("0x")
        .filter(|digits| digits.len() == 2 * bytes.len())
        .ok_or_else(wrong)?;
    let digits = digits.as_bytes().chunks(2);
    let read = digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or_default(), 16).ok());
    let read: Vec<u8> = read.collect::<Option<_>>().ok_or_else(wrong)?;
    bytes.copy_from_slice(&read);
    Ok(())
}

fn float(value: &Value, bytes: &mut [u8]) -> Result<(), String> {
    let number = value.as_f64().ok_or("a number is needed")?;
    match bytes.len() {
        4 => bytes.copy_from_slice(&(number as f32).to_le_bytes()),
        8 => bytes.copy_from_slice(&number.to_le_bytes()),
        _ => return Err("numbers of this size can't be given".to_owned()),
    }
    Ok(())
}

/// Writes a number, or a text with a number: 0x and digits, as documents show numbers of 128 bits.
fn integer(value: &Value, signed: bool, bytes: &mut [u8]) -> Result<(), String> {
    let bits = 8 * bytes.len().clamp(1, 16) as u32;
    let range = match (signed, bits) {
        (true, 128) => "-2^127 to 2^127-1".to_owned(),
        (false, 128) => "0 to 2^128-1".to_owned(),
        (true, _) => format!(
            "{} to {}",
            -(1_i128 << (bits - 1)),
            (1_i128 << (bits - 1)) - 1
        ),
        (false, _) => format!("0 to {}", (1_u128 << bits) - 1),
    };
    let wrong = || format!("a number from {range} is needed");
    let number: i128 = match value {
        Value::Number(number) => number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            .ok_or_else(wrong)?,
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => u128::from_str_radix(digits, 16)
                .map_err(|_| wrong())?
                .cast_signed(),
            None => return Err(wrong()),
        },
        _ => return Err(wrong()),
    };
    let fits = match (signed, bits) {
        (_, 128) => true,
        (true, _) => (-(1_i128 << (bits - 1))..1_i128 << (bits - 1)).contains(&number),
        (false, _) => (0..1_i128 << bits).contains(&number),
    };
    if !fits {
        return Err(wrong());
    }
    let length = bytes.len().min(16);
    bytes[..length].copy_from_slice(&number.to_le_bytes()[..length]);
    Ok(())
}

/// Bytes that can contain a number below 256: the first byte is the number, and all others are 0.
trait First {
    fn fill_with_first(&mut self, first: u8);
}

impl First for [u8] {
    fn fill_with_first(&mut self, first: u8) {
        self.fill(0);
        self.iter_mut().take(1).for_each(|byte| *byte = first);
    }
}

#[cfg(test)]
mod tests;
