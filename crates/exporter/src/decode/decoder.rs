//! The decoder of bytes by a plan.

use twinprobe_ebpf_common::Context;
use twinprobe_ebpf_common::window::owner::OwnersAt;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use super::key::KeyPlan;
use super::sink::ValueSink;
use super::text;
use twinprobe_ebpf_common::field::bits::{load, load_bits, load_small, sign_extend};
use twinprobe_ebpf_common::field::names;
use twinprobe_ebpf_common::field::plan::{FieldPlan, Plan, Scalar, is_name};

/// A walk over bytes by plans, which passes the values to a sink.
pub struct Decoder<'a> {
    context: &'a Context,
    /// Memory for the text of renderings, which all rows share.
    scratch: String,
    /// True while a key is decoded: all bits of a key are shown.
    is_key: bool,
    /// The interfaces whose names do not distinguish them from other keys; computed at the first
    /// interface.
    alike: OnceCell<HashSet<u32>>,
}

impl<'a> Decoder<'a> {
    /// Makes a decoder for values of the machine that `context` describes.
    pub const fn new(context: &'a Context) -> Self {
        Self {
            context,
            scratch: String::new(),
            is_key: false,
            alike: OnceCell::new(),
        }
    }

    /// Returns the owners of addresses, if the document shows them.
    pub const fn owners(&self) -> Option<&'a OwnersAt> {
        self.context.owners.as_ref()
    }

    /// Decodes a key so that keys that differ are shown differently.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer bytes than the layout has.
    pub fn key<S: ValueSink>(&mut self, key: &KeyPlan<S::Label>, bytes: &[u8], sink: &mut S) {
        self.is_key = true;
        match &key.plan {
            plan if !key.padding.is_set(bytes) => self.value(plan, bytes, sink),
            Plan::Struct(fields) => {
                sink.begin_struct();
                self.members(fields, bytes, sink);
                sink.begin_member(fields.len(), &key.label);
                self.plain(sink, |out| text::hex(out, &key.padding.bytes(bytes)));
                sink.end_member(&key.label);
                sink.end_struct();
            }
            _ => self.plain(sink, |out| text::hex(out, bytes)),
        }
        self.is_key = false;
    }

    /// Decodes one part of a key.
    pub fn key_part<S: ValueSink>(&mut self, part: &FieldPlan<S::Label>, key: &[u8], sink: &mut S) {
        self.is_key = true;
        self.field(part, &key[part.offset..][..part.size], sink);
        self.is_key = false;
    }

    /// Decodes `bytes`, which have the size of the plan's layout.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer bytes than the layout has.
    pub fn value<S: ValueSink>(&mut self, plan: &Plan<S::Label>, bytes: &[u8], sink: &mut S) {
        match plan {
            Plan::Scalar {
                kind: Scalar::Unsigned,
                size: size @ ..=8,
            } => {
                sink.unsigned(load_small(&bytes[..*size]));
            }
            Plan::Scalar {
                kind: Scalar::Swapped,
                size,
            } => {
                // The low bytes of a big-endian number are at the end.
                sink.unsigned((load(&bytes[..*size]) << (128 - 8 * size)).swap_bytes() as u64);
            }
            Plan::Scalar { kind, size } => {
                self.scalar(kind, load(&bytes[..*size]), 8 * *size as u32, sink);
            }
            Plan::Float { size } if self.is_key && !is_ordinary(&bytes[..*size]) => {
                self.plain(sink, |out| extraordinary(out, &bytes[..*size]));
            }
            Plan::Float { size: 4 } => {
                let value = f32::from_bits(load_small(&bytes[..4]) as u32);
                sink.float(value.into(), format_args!("{value:?}"));
            }
            Plan::Float { size } => {
                let value = f64::from_bits(load_small(&bytes[..*size]));
                sink.float(value, format_args!("{value:?}"));
            }
            Plan::Text { size } => {
                self.text(&bytes[..*size], sink);
            }
            Plan::Blob { size } => self.plain(sink, |out| text::hex(out, &bytes[..*size])),
            Plan::Ipv4 => {
                let (text, len) = text::ipv4(load_small(&bytes[..4]) as u32);
                sink.short(&text, len);
            }
            Plan::Ip => self.plain(sink, |out| text::ip(out, &bytes[..16])),
            Plan::Mac => self.plain(sink, |out| text::mac(out, &bytes[..6])),
            Plan::Prefix(prefix) => sink.plain(prefix.text(bytes).as_bytes()),
            Plan::Struct(fields) => {
                sink.begin_struct();
                self.members(fields, bytes, sink);
                sink.end_struct();
            }
            Plan::Array {
                element,
                stride,
                len,
            } => {
                sink.begin_array();
                for index in 0..*len {
                    sink.begin_item(index);
                    self.value(element, &bytes[index * stride..][..*stride], sink);
                    sink.end_item();
                }
                sink.end_array();
            }
        }
    }

    fn members<S: ValueSink>(
        &mut self,
        fields: &[FieldPlan<S::Label>],
        bytes: &[u8],
        sink: &mut S,
    ) {
        for (index, field) in fields.iter().enumerate() {
            sink.begin_member(index, &field.label);
            self.field(field, &bytes[field.offset..][..field.size], sink);
            sink.end_member(&field.label);
        }
    }

    /// Decodes text up to the first NUL. In a key with bytes after the NUL, decodes all of the
    /// text.
    fn text<S: ValueSink>(&mut self, bytes: &[u8], sink: &mut S) {
        let end = match self.is_key {
            true => bytes
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |last| last + 1),
            false => bytes
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(bytes.len()),
        };
        let text = &bytes[..end];
        match std::str::from_utf8(text) {
            Ok(text) if !text.contains(['\0', '\\']) => sink.text(text),
            _ => {
                self.scratch.clear();
                text::escaped(&mut self.scratch, text);
                sink.text(&self.scratch);
            }
        }
    }

    /// Decodes the bytes of one field, from the field's offset on. The loop over the fields
    /// contains the plans of most fields, so that these need no call.
    #[inline]
    pub fn field<S: ValueSink>(&mut self, field: &FieldPlan<S::Label>, bytes: &[u8], sink: &mut S) {
        match (&field.plan, field.bits) {
            (
                Plan::Scalar {
                    kind: Scalar::Unsigned,
                    size: ..=8,
                },
                None,
            ) => sink.unsigned(load_small(bytes)),
            (
                Plan::Scalar {
                    kind: Scalar::Swapped,
                    size: 2,
                },
                None,
            ) => {
                sink.unsigned((load_small(bytes) as u16).swap_bytes().into());
            }
            (Plan::Ipv4, None) => {
                let (text, len) = text::ipv4(load_small(bytes) as u32);
                sink.short(&text, len);
            }
            (Plan::Scalar { kind, .. }, Some(bits)) => {
                self.scalar(kind, load_bits(bytes, bits), bits.width, sink);
            }
            (plan, _) => self.value(plan, bytes, sink),
        }
    }

    /// Passes a number to the sink; `value` is zero-extended from `width` bits.
    fn scalar<S: ValueSink>(&mut self, kind: &Scalar, value: u128, width: u32, sink: &mut S) {
        let (small, signed) = (value as u64, sign_extend(value, width) as i64);
        match kind {
            Scalar::Bool if !self.is_key || value <= 1 => sink.boolean(value != 0),
            Scalar::Enum {
                signed: is_signed,
                variants,
            } => {
                let index = variants.partition_point(|(variant, _)| *variant < small);
                match variants.get(index) {
                    Some((variant, name)) if *variant == small => sink.text(name),
                    _ if *is_signed => sink.signed(signed),
                    _ => sink.unsigned(small),
                }
            }
            Scalar::Flags(names) => match names::flags(names, small) {
                Some(text) => sink.text(&text),
                None => sink.unsigned(small),
            },
            Scalar::Ktime => {
                self.scratch.clear();
                let time = self.context.boot_time_ns.checked_add(value.cast_signed());
                match time {
                    Some(time) if text::time(&mut self.scratch, time) => {
                        sink.plain(self.scratch.as_bytes());
                    }
                    _ => self.unsigned(value, width, sink),
                }
            }
            Scalar::Time => {
                self.scratch.clear();
                if value != 0 && text::time(&mut self.scratch, value.cast_signed()) {
                    sink.plain(self.scratch.as_bytes());
                } else {
                    sink.unsigned(small);
                }
            }
            Scalar::Ifindex => self.interface(value, width, sink),
            Scalar::Signed if width <= 64 => sink.signed(signed),
            Scalar::Bool | Scalar::Unsigned | Scalar::Signed | Scalar::Swapped => {
                self.unsigned(value, width, sink);
            }
            Scalar::Decimal { signed: is_signed } => {
                let wide = sign_extend(value, width);
                match (u64::try_from(value), i64::try_from(wide)) {
                    (Ok(small), _) => sink.unsigned(small),
                    (_, Ok(small)) if *is_signed => sink.signed(small),
                    _ if *is_signed => sink.integer(itoa::Buffer::new().format(wide)),
                    _ => sink.integer(itoa::Buffer::new().format(value)),
                }
            }
            Scalar::Hex => self.number_in_hex(value, width, sink),
        }
    }

    /// Passes the name of the interface with this index to the sink, or the index if no interface
    /// has it.
    fn interface<S: ValueSink>(&mut self, index: u128, width: u32, sink: &mut S) {
        let known = u32::try_from(index).ok();
        let name = known.and_then(|known| Some((known, self.context.interfaces.get(&known)?)));
        match name {
            Some((index, name)) if self.is_key && self.is_alike(index) => {
                sink.text(&format!("{name}#{index}"));
            }
            Some((_, name)) => sink.text(name),
            None => self.unsigned(index, width, sink),
        }
    }

    /// Passes a number of any width to the sink.
    fn unsigned<S: ValueSink>(&mut self, value: u128, width: u32, sink: &mut S) {
        if width <= 64 {
            sink.unsigned(value as u64);
        } else {
            self.number_in_hex(value, width, sink);
        }
    }

    fn number_in_hex<S: ValueSink>(&mut self, value: u128, width: u32, sink: &mut S) {
        let bytes = value.to_be_bytes();
        let used = &bytes[bytes.len() - width.div_ceil(8) as usize..];
        self.plain(sink, |out| text::hex(out, used));
    }

    /// Tells whether another interface has the same name, or whether the name looks like a number
    /// or an escape.
    fn is_alike(&self, index: u32) -> bool {
        let alike = self.alike.get_or_init(|| {
            let mut counts: HashMap<&str, u32> = HashMap::new();
            self.context
                .interfaces
                .values()
                .for_each(|name| *counts.entry(name).or_default() += 1);
            let alike = self.context.interfaces.iter();
            alike
                .filter(|(_, name)| counts[&***name] > 1 || !is_name(name))
                .map(|(index, _)| *index)
                .collect()
        });
        alike.contains(&index)
    }

    fn plain<S: ValueSink>(&mut self, sink: &mut S, render: impl FnOnce(&mut String)) {
        self.scratch.clear();
        render(&mut self.scratch);
        sink.plain(self.scratch.as_bytes());
    }
}

fn widened(float: &[u8]) -> f64 {
    let bits = load_small(float);
    if float.len() == 4 {
        f32::from_bits(bits as u32).into()
    } else {
        f64::from_bits(bits)
    }
}

/// Tells whether JSON has a number for a float that all readers distinguish from all other floats.
fn is_ordinary(float: &[u8]) -> bool {
    let value = widened(float);
    value.is_finite() && !(value == 0.0 && value.is_sign_negative())
}

/// Appends the name of a float for which JSON has no such number. The name of a NaN includes its
/// bits.
fn extraordinary(out: &mut String, float: &[u8]) {
    match widened(float) {
        f64::INFINITY => out.push_str("Infinity"),
        f64::NEG_INFINITY => out.push_str("-Infinity"),
        value if value.is_nan() => {
            out.push_str("NaN:");
            text::hex(out, &load_small(float).to_be_bytes()[8 - float.len()..]);
        }
        _ => out.push_str("-0.0"),
    }
}

#[cfg(test)]
mod tests;
