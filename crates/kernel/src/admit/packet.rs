//! The context of a program: the fields that lead to the packet.

use twinprobe_ebpf_common::hook::ProgramKind;

use crate::admit::value::AbstractValue;

/// The offsets of `data`, `data_end` and `data_meta` in `struct xdp_md` and in `struct __sk_buff`,
/// in bytes.
const XDP: [i64; 3] = [0, 4, 8];
const TC: [i64; 3] = [76, 80, 140];
/// The size of each of these fields, in bytes.
const FIELD: i64 = 4;
/// The offset and size of `sk` in `struct __sk_buff`, a pointer to a socket.
const SOCKET: (i64, i64) = (168, 8);

/// Returns the possible values of `size` bytes of the context at this offset. Without an offset,
/// the bytes may be anywhere in the context.
pub fn read_context(kind: ProgramKind, offset: Option<i64>, size: i64) -> AbstractValue {
    let fields = match kind {
        ProgramKind::Xdp => XDP,
        ProgramKind::Tc => TC,
    };
    let Some(offset) = offset else {
        return AbstractValue::PLAIN.join(AbstractValue::PACKET);
    };
    match fields
        .into_iter()
        .find(|field| offset < field + FIELD && *field < offset + size)
    {
        Some(field) if field == offset && size == FIELD => AbstractValue::PACKET,
        Some(_) => AbstractValue::NUMBER.join(AbstractValue::PACKET),
        None if kind.has_skb() && (offset, size) == SOCKET => AbstractValue::PLAIN,
        None => AbstractValue::NUMBER,
    }
}
