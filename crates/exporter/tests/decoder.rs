//! Compares the exporter with a decoder that reads single bits and knows nothing of plans.

mod support;
mod types;

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use support::{Document, encoded, metric, unsigned};
use twinprobe_ebpf_common::{Aggregation, Context, Format, Layout, MapKind, Member, Render, Shape};
use types::{any_type, leaf, number};

/// The bits of a value, the lowest first.
#[derive(Clone, Copy)]
struct Bits<'a> {
    bytes: &'a [u8],
    start: usize,
    width: usize,
}

impl Bits<'_> {
    fn at(&self, start: usize, width: usize) -> Self {
        Self {
            start: self.start + start,
            width,
            ..*self
        }
    }

    fn unsigned(&self) -> u128 {
        let bit = |index: usize| self.bytes[index / 8] >> (index % 8) & 1;
        (0..self.width).fold(0, |number, index| {
            number | u128::from(bit(self.start + index)) << index
        })
    }

    fn signed(&self) -> i128 {
        let number = self.unsigned();
        let negative = self.width > 0 && number >> (self.width - 1) & 1 == 1;
        if negative && self.width < 128 {
            number.cast_signed() - (1 << self.width)
        } else {
            number.cast_signed()
        }
    }

    fn bytes(&self) -> Vec<u8> {
        (0..self.width / 8)
            .map(|index| self.at(8 * index, 8).unsigned() as u8)
            .collect()
    }
}

fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
    let digits: String = bytes.into_iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    format!("\"0x{digits}\"")
}

fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let shown: String = bytes[..end]
        .utf8_chunks()
        .map(|chunk| {
            let invalid: String = chunk
                .invalid()
                .iter()
                .map(|byte| format!("\\x{byte:02x}"))
                .collect();
            chunk.valid().to_owned() + &invalid
        })
        .collect();
    let escaped: String = shown
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            '\n' => "\\n".into(),
            '\r' => "\\r".into(),
            '\t' => "\\t".into(),
            '\0'..' ' => format!("\\u{:04x}", u32::from(c)),
            c => c.into(),
        })
        .collect();
    format!("\"{escaped}\"")
}

fn integer(bits: Bits<'_>, is_signed: bool) -> String {
    match (bits.width, is_signed) {
        (65.., _) => hex(bits
            .unsigned()
            .to_be_bytes()
            .into_iter()
            .skip(16 - bits.width.div_ceil(8))),
        (_, true) => bits.signed().to_string(),
        _ => bits.unsigned().to_string(),
    }
}

fn show(layout: &Layout, bits: Bits<'_>) -> String {
    let bytes = bits.bytes();
    match layout.render {
        Some(Render::Ipv4) => {
            return format!(
                "\"{}\"",
                Ipv4Addr::from(<[u8; 4]>::try_from(bytes).expect("4 bytes"))
            );
        }
        Some(Render::Ipv6 | Render::Ip) => {
            let address = match bytes[..] {
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => {
                    Ipv4Addr::new(a, b, c, d).into()
                }
                _ => IpAddr::from(<[u8; 16]>::try_from(&bytes[..]).expect("16 bytes")),
            };
            return format!("\"{address}\"");
        }
        Some(Render::Prefix) => {
            let Shape::Struct(members) = &layout.shape else {
                panic!("{layout:?}")
            };
            let part = |index: usize| {
                let member: &Member = &members[index];
                bits.at(member.bit_offset, 8 * member.layout.size)
            };
            let (number, address) = (part(0).unsigned(), part(1).bytes());
            return match address[..] {
                [a, b, c, d] => format!("\"{a}.{b}.{c}.{d}/{number}\""),
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] if number >= 96 => {
                    format!("\"{a}.{b}.{c}.{d}/{}\"", number - 96)
                }
                _ => format!(
                    "\"{}/{number}\"",
                    Ipv6Addr::from(<[u8; 16]>::try_from(&address[..]).expect("16 bytes"))
                ),
            };
        }
        Some(Render::Mac) => {
            let parts: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            return format!("\"{}\"", parts.join(":"));
        }
        Some(Render::Be16 | Render::Be32 | Render::Be64) => {
            return bytes
                .iter()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
                .to_string();
        }
        Some(Render::Hex) => {
            return hex(bits
                .unsigned()
                .to_be_bytes()
                .into_iter()
                .skip(16 - bits.width.div_ceil(8)));
        }
        Some(Render::Decimal) => {
            let signed = matches!(layout.shape, Shape::Int { signed: true });
            return if signed {
                bits.signed().to_string()
            } else {
                bits.unsigned().to_string()
            };
        }
        Some(Render::String) => return text(&bytes),
        _ => {}
    }
    match &layout.shape {
        Shape::Int { signed } => integer(bits, *signed),
        Shape::Char => bits.signed().to_string(),
        Shape::Bool => (bits.unsigned() != 0).to_string(),
        Shape::Float if layout.size == 4 => {
            let number = f32::from_bits(bits.unsigned() as u32);
            if number.is_finite() {
                format!("{number:?}")
            } else {
                "null".into()
            }
        }
        Shape::Float => {
            let number = f64::from_bits(bits.unsigned() as u64);
            if number.is_finite() {
                format!("{number:?}")
            } else {
                "null".into()
            }
        }
        Shape::Enum { signed, variants } => {
            let mask = u128::MAX >> (128 - bits.width);
            let named = variants
                .iter()
                .find(|variant| u128::from(variant.value) & mask == bits.unsigned());
            named.map_or_else(
                || integer(bits, *signed),
                |variant| format!("\"{}\"", variant.name),
            )
        }
        Shape::Struct(members) | Shape::Union(members) => {
            let members: Vec<_> = members
                .iter()
                .map(|member| {
                    let width = member.bitfield.map_or(8 * member.layout.size, usize::from);
                    let value = show(&member.layout, bits.at(member.bit_offset, width));
                    format!("\"{}\":{value}", member.name)
                })
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Shape::Array { element, .. } if matches!(element.shape, Shape::Char) => text(&bytes),
        Shape::Array { element, len } => {
            let width = 8 * element.size;
            let items: Vec<_> = (0..*len)
                .map(|index| show(element, bits.at(index * width, width)))
                .collect();
            format!("[{}]", items.join(","))
        }
        Shape::Opaque => hex(bytes),
    }
}

/// The value that is written for these bytes.
fn written(
    kind: MapKind,
    agg: Option<Aggregation>,
    layout: &Layout,
    bytes: &[u8],
    cpus: usize,
) -> String {
    let mut table = metric("m", kind, agg, [unsigned(4), layout.clone()], &[]);
    let layout = twinprobe_ebpf_common::TableLayout {
        slots: cpus,
        ..(*table.metric.layout).clone()
    };
    table.metric = std::sync::Arc::new(
        (*table.metric)
            .clone()
            .with(|head| head.layout = layout.into()),
    );
    table.table.keys = vec![0; 4];
    table.table.values = bytes.to_vec();
    let document = Document {
        ingress: vec![table],
        ..Document::default()
    };
    let json = encoded(&document, &Context::default(), Format::Json);
    let (_, value) = json.split_once("\"key\":0,\"value\":").expect("an entry");
    value
        .strip_suffix("}]}},\"egress\":{}}")
        .expect("one entry")
        .to_owned()
}

/// Folds each number of the slots, bit by bit, into the first slot that is not empty.
fn fold(layout: &Layout, slots: &[&[u8]], start: usize, agg: Aggregation, into: &mut [u8]) {
    match &layout.shape {
        Shape::Struct(members) => {
            for member in members {
                let start = start + member.bit_offset;
                match member.bitfield {
                    Some(width) => {
                        fold_number(&member.layout, slots, start, width.into(), agg, into);
                    }
                    None => fold(&member.layout, slots, start, agg, into),
                }
            }
        }
        Shape::Array { element, len } => {
            (0..*len).for_each(|index| {
                fold(element, slots, start + 8 * element.size * index, agg, into);
            });
        }
        _ => fold_number(layout, slots, start, 8 * layout.size, agg, into),
    }
}

fn fold_number(
    layout: &Layout,
    slots: &[&[u8]],
    start: usize,
    width: usize,
    agg: Aggregation,
    into: &mut [u8],
) {
    let swapped = layout.render.is_some();
    let swap = |number: u128| {
        if swapped {
            number.swap_bytes() >> (128 - width)
        } else {
            number
        }
    };
    let is_bool = matches!(layout.shape, Shape::Bool);
    let is_signed = matches!(layout.shape, Shape::Int { signed: true });
    let bits = |bytes| Bits {
        bytes,
        start,
        width,
    };
    let result = if is_bool {
        let set = slots
            .iter()
            .filter(|slot| bits(slot).unsigned() != 0)
            .count();
        u128::from(match agg {
            Aggregation::Sum | Aggregation::Max => set > 0,
            Aggregation::Avg | Aggregation::Min => set == slots.len(),
        })
    } else if is_signed {
        let numbers = slots.iter().map(|slot| bits(slot).signed());
        match agg {
            Aggregation::Sum => unreachable!("sums are wider than their fields"),
            Aggregation::Avg => numbers.sum::<i128>() / slots.len() as i128,
            Aggregation::Min => numbers.min().expect("a CPU"),
            Aggregation::Max => numbers.max().expect("a CPU"),
        }
        .cast_unsigned()
    } else {
        let numbers = slots.iter().map(|slot| swap(bits(slot).unsigned()));
        match agg {
            Aggregation::Sum => unreachable!("sums are wider than their fields"),
            Aggregation::Avg => numbers.sum::<u128>() / slots.len() as u128,
            Aggregation::Min => numbers.min().expect("a CPU"),
            Aggregation::Max => numbers.max().expect("a CPU"),
        }
    };
    let result = if swapped {
        (result << (128 - width)).swap_bytes()
    } else {
        result
    };
    for bit in 0..width {
        let byte = &mut into[(start + bit) / 8];
        let mask = 1 << ((start + bit) % 8);
        *byte = if result >> bit & 1 == 1 {
            *byte | mask
        } else {
            *byte & !mask
        };
    }
}

/// The sums of the numbers of all slots, in 128 bits. `base` is the slot from which other numbers
/// come.
fn show_sums(
    layout: &Layout,
    slots: &[&[u8]],
    base: &[u8],
    (start, width): (usize, usize),
) -> String {
    let bits = |bytes| Bits {
        bytes,
        start,
        width,
    };
    match &layout.shape {
        Shape::Struct(members) => {
            let member = |member: &Member| {
                let width = member.bitfield.map_or(8 * member.layout.size, usize::from);
                let sums = show_sums(
                    &member.layout,
                    slots,
                    base,
                    (start + member.bit_offset, width),
                );
                format!("\"{}\":{sums}", member.name)
            };
            format!(
                "{{{}}}",
                members.iter().map(member).collect::<Vec<_>>().join(",")
            )
        }
        Shape::Array { element, len } => {
            let width = 8 * element.size;
            let item = |index| show_sums(element, slots, base, (start + index * width, width));
            format!("[{}]", (0..*len).map(item).collect::<Vec<_>>().join(","))
        }
        _ if layout.render.is_some() => show(layout, bits(base)),
        Shape::Bool => slots
            .iter()
            .any(|slot| bits(slot).unsigned() != 0)
            .to_string(),
        Shape::Int { signed: true } => slots
            .iter()
            .map(|slot| bits(slot).signed())
            .sum::<i128>()
            .to_string(),
        _ => slots
            .iter()
            .map(|slot| bits(slot).unsigned())
            .sum::<u128>()
            .to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn values_are_what_their_bits_say(layout in any_type(leaf(), 0..4), seed in vec(any::<u8>(), 64)) {
        let bytes: Vec<u8> = seed.iter().copied().cycle().take(layout.size).collect();
        let expected = show(&layout, Bits { bytes: &bytes, start: 0, width: 8 * layout.size });
        prop_assert_eq!(written(MapKind::Hash, None, &layout, &bytes, 1), expected);
    }

    /// One value for each possible CPU, online or not; numbers of up to 64 bits never overflow an
    /// average, nor a sum.
    #[test]
    fn cpus_are_folded_number_by_number(
        layout in any_type(number().prop_filter("sums of 128 bits", |layout| layout.size < 16), 1..4),
        seed in vec(prop_oneof![any::<u8>(), Just(0xff), Just(0)], 97),
        cpus in 1_usize..7,
        agg in option::of(select(Aggregation::ALL.to_vec())),
    ) {
        let stride = layout.size.next_multiple_of(8);
        let bytes: Vec<u8> = seed.iter().copied().cycle().take(stride * cpus).collect();
        let slots: Vec<&[u8]> = bytes.chunks(stride).map(|slot| &slot[..layout.size]).collect();
        let shown = |bytes: &[u8]| show(&layout, Bits { bytes, start: 0, width: 8 * layout.size });
        let expected = if let Some(agg) = agg {
            let touched = slots.iter().find(|slot| slot.iter().any(|byte| *byte != 0));
            let mut folded = touched.unwrap_or(&slots[0]).to_vec();
            if agg == Aggregation::Sum {
                show_sums(&layout, &slots, &folded, (0, 8 * layout.size))
            } else {
                fold(&layout, &slots, 0, agg, &mut folded);
                shown(&folded)
            }
        } else {
            let shown: Vec<_> = slots.iter().map(|slot| shown(slot)).collect();
            format!("[{}]", shown.join(","))
        };
        prop_assert_eq!(written(MapKind::PercpuArray, agg, &layout, &bytes, cpus), expected);
    }
}
