//! Events as JSON, appended to the buffer of their reader. The encoder walks once over the bytes in
//! the ring, and allocates nothing per event.

use twinprobe_ebpf_common::Layout;

use super::fragment::Fragment;
use super::json::Json;
use super::sink::DocumentSink as _;
use crate::decode::decoder::Decoder;
use crate::decode::sink::ValueSink as _;
use twinprobe_ebpf_common::field::plan::Plan;

/// The plan by which the events of one metric are written.
#[derive(Clone, Debug)]
pub struct EventEncoder {
    /// The size of the type in bytes and the plan of its values. `None` if no type is known: events
    /// are shown in hex.
    typed: Option<(usize, Plan<Fragment>)>,
}

impl EventEncoder {
    /// Makes the encoder for a layout; `None` if no type is known.
    pub fn new(layout: Option<&Layout>) -> Self {
        Self {
            typed: layout.map(|layout| (layout.size, Plan::new(layout, Json::label))),
        }
    }

    /// Appends the value of an event. An event that is shorter than the type is shown in hex.
    /// Returns the bytes of a longer event that follow the value.
    pub fn value<'a>(
        &self,
        decoder: &mut Decoder<'_>,
        event: &'a [u8],
        out: &mut Vec<u8>,
    ) -> &'a [u8] {
        match &self.typed {
            Some((size, plan)) if event.len() >= *size => {
                let (value, rest) = event.split_at(*size);
                append(plan, decoder, value, out);
                rest
            }
            _ => {
                Self::hex(decoder, event, out);
                &[]
            }
        }
    }

    /// Appends bytes of unknown meaning as a string of hex digits.
    pub fn hex(decoder: &mut Decoder<'_>, bytes: &[u8], out: &mut Vec<u8>) {
        append(&Plan::Blob { size: bytes.len() }, decoder, bytes, out);
    }

    /// Appends `text` as a string.
    pub fn string(text: &str, out: &mut Vec<u8>) {
        with_sink(out, |sink| sink.text(text));
    }
}

fn append(plan: &Plan<Fragment>, decoder: &mut Decoder<'_>, bytes: &[u8], out: &mut Vec<u8>) {
    with_sink(out, |sink| decoder.value(plan, bytes, sink));
}

/// Calls `write` with a sink that appends to `out`. This copies no content.
fn with_sink(out: &mut Vec<u8>, write: impl FnOnce(&mut Json)) {
    let mut sink = Json::default();
    *sink.buffer() = std::mem::take(out);
    write(&mut sink);
    *out = std::mem::take(sink.buffer());
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::Context;

    use super::*;

    #[test]
    fn events_are_appended_by_their_type_and_length() {
        let context = Context::default();
        let mut decoder = Decoder::new(&context);
        let (typed, untyped) = (
            EventEncoder::new(Some(&Layout::unsigned(2))),
            EventEncoder::new(None),
        );
        let mut out = b"> ".to_vec();
        assert_eq!(typed.value(&mut decoder, &[1, 2], &mut out), b"");
        assert_eq!(typed.value(&mut decoder, &[1, 0, 3], &mut out), [3]);
        assert_eq!(typed.value(&mut decoder, &[7], &mut out), b"");
        assert_eq!(untyped.value(&mut decoder, &[1, 0xff], &mut out), b"");
        EventEncoder::string("\"", &mut out);
        assert_eq!(out, b"> 5131\"0x07\"\"0x01ff\"\"\\\"\"");
    }
}
