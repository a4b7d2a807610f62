//! The decoding of bytes by a plan.

use twinprobe_ebpf_common::Context;

use super::sink::ValueSink;
use super::text;
use twinprobe_ebpf_common::field::bits::{load, load_bits, load_small, sign_extend};
use twinprobe_ebpf_common::field::plan::{Field, Plan, Scalar};

/// A walk of plans over bytes, which passes the values to a sink.
pub struct Decoder<'a> {
    context: &'a Context,
    /// Memory for the text of renderings, kept from row to row.
    scratch: String,
}

impl<'a> Decoder<'a> {
    /// Makes a decoder for values of the machine that `context` describes.
    pub const fn new(context: &'a Context) -> Self {
        Self { context, scratch: String::new() }
    }

    /// Decodes `bytes`, which have the size of the layout that the plan was made from.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer bytes than that.
    pub fn value<S: ValueSink>(&mut self, plan: &Plan<S::Label>, bytes: &[u8], sink: &mut S) {
        match plan {
            Plan::Scalar { kind: Scalar::Unsigned, size: size @ ..=8 } => {
                sink.unsigned(load_small(&bytes[..*size]));
            }
            Plan::Scalar { kind: Scalar::Swapped, size } => {
                // The low bytes of a big-endian number are at the end.
                sink.unsigned((load(&bytes[..*size]) << (128 - 8 * size)).swap_bytes() as u64);
            }
            Plan::Scalar { kind, size } => self.scalar(kind, load(&bytes[..*size]), 8 * *size as u32, sink),
            Plan::Float { size: 4 } => {
                let value = f32::from_bits(load_small(&bytes[..4]) as u32);
                sink.float(value.into(), format_args!("{value:?}"));
            }
            Plan::Float { size } => {
                let value = f64::from_bits(load_small(&bytes[..*size]));
                sink.float(value, format_args!("{value:?}"));
            }
            Plan::Text { size } => {
                let text = &bytes[..*size];
                let len = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
                sink.text(&String::from_utf8_lossy(&text[..len]));
            }
            Plan::Blob { size } => self.plain(sink, |out| text::hex(out, &bytes[..*size])),
            Plan::Ipv4 => {
                let (text, len) = text::ipv4(load_small(&bytes[..4]) as u32);
                sink.short(&text, len);
            }
            Plan::Ipv6 => self.plain(sink, |out| text::ipv6(out, &bytes[..16])),
            Plan::Ip => self.plain(sink, |out| text::ip(out, &bytes[..16])),
            Plan::Mac => self.plain(sink, |out| text::mac(out, &bytes[..6])),
            Plan::Struct(fields) => {
                sink.begin_struct();
                for (index, field) in fields.iter().enumerate() {
                    sink.begin_member(index, &field.label);
                    self.field(field, &bytes[field.offset..][..field.size], sink);
                    sink.end_member(&field.label);
                }
                sink.end_struct();
            }
            Plan::Array { element, stride, len } => {
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

    /// Decodes the bytes of one field, from its offset on. The loop over the fields has the plans of most fields in it,
    /// without a call for each.
    #[inline]
    pub fn field<S: ValueSink>(&mut self, field: &Field<S::Label>, bytes: &[u8], sink: &mut S) {
        match (&field.plan, field.bits) {
            (Plan::Scalar { kind: Scalar::Unsigned, size: ..=8 }, None) => sink.unsigned(load_small(bytes)),
            (Plan::Scalar { kind: Scalar::Swapped, size: 2 }, None) => {
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
            Scalar::Bool => sink.boolean(value != 0),
            Scalar::Enum { signed: is_signed, variants } => {
                let index = variants.partition_point(|(variant, _)| *variant < small);
                match variants.get(index) {
                    Some((variant, name)) if *variant == small => sink.text(name),
                    _ if *is_signed => sink.signed(signed),
                    _ => sink.unsigned(small),
                }
            }
            Scalar::Ktime => {
                self.scratch.clear();
                let time = self.context.boot_time_ns.checked_add(value.cast_signed());
                match time {
                    Some(time) if text::time(&mut self.scratch, time) => sink.plain(self.scratch.as_bytes()),
                    _ => sink.unsigned(small),
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
            Scalar::Ifindex => {
                let index = u32::try_from(value).ok();
                match index.and_then(|index| self.context.interfaces.get(&index)) {
                    Some(name) => sink.text(name),
                    None => sink.unsigned(small),
                }
            }
            Scalar::Unsigned | Scalar::Swapped if width <= 64 => sink.unsigned(small),
            Scalar::Signed if width <= 64 => sink.signed(signed),
            Scalar::Hex | Scalar::Unsigned | Scalar::Signed | Scalar::Swapped => {
                let bytes = value.to_be_bytes();
                let used = &bytes[bytes.len() - width.div_ceil(8) as usize..];
                self.plain(sink, |out| text::hex(out, used));
            }
        }
    }

    fn plain<S: ValueSink>(&mut self, sink: &mut S, render: impl FnOnce(&mut String)) {
        self.scratch.clear();
        render(&mut self.scratch);
        sink.plain(self.scratch.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{EnumVariant, Layout, Render, Shape};

    use super::*;
    use crate::encode::json::Json;
    use crate::encode::sink::DocumentSink as _;

    fn shown(layout: &Layout, bytes: &[u8]) -> String {
        let context = Context { boot_time_ns: 1, interfaces: [(2, "eth0".to_owned())].into() };
        let mut json = Json::default();
        Decoder::new(&context).value(&Plan::new(layout, Json::label), bytes, &mut json);
        String::from_utf8(json.buffer().clone()).expect("UTF-8")
    }

    #[test]
    fn names_and_times_are_shown_where_there_are_any() {
        let tagged = |render, size| Layout { render: Some(render), ..Layout::unsigned(size) };
        assert_eq!(shown(&tagged(Render::Ifindex, 4), &[2, 0, 0, 0]), "\"eth0\"");
        assert_eq!(shown(&tagged(Render::Ifindex, 4), &[3, 0, 0, 0]), "3");
        let time = "\"1970-01-01T00:00:00.000000008Z\"";
        assert_eq!(shown(&tagged(Render::Ktime, 8), &[7, 0, 0, 0, 0, 0, 0, 0]), time);
        let variants = vec![EnumVariant { name: "OPEN".into(), value: 1 }];
        let state = Layout { size: 1, shape: Shape::Enum { signed: true, variants }, render: None };
        assert_eq!((shown(&state, &[1]), shown(&state, &[0xff])), ("\"OPEN\"".into(), "-1".into()));
    }

    #[test]
    fn numbers_wider_than_any_format_are_shown_in_hex() {
        assert_eq!(shown(&Layout::unsigned(16), &[1; 16]), format!("\"0x{}\"", "01".repeat(16)));
        assert_eq!(shown(&Layout::unsigned(8), &[0xff; 8]), u64::MAX.to_string());
    }

    #[test]
    fn floats_of_4_bytes_are_not_as_long_as_the_same_numbers_of_8() {
        let float = |size| Layout { size, shape: Shape::Float, render: None };
        assert_eq!(shown(&float(4), &0.1_f32.to_le_bytes()), "0.1");
        assert_eq!(shown(&float(8), &f64::from(0.1_f32).to_le_bytes()), "0.10000000149011612");
    }
}
