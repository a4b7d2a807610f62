//! The kinds of XDP programs: for packets of several buffers (`SEC("xdp.frags")`), of a single
//! buffer (`SEC("xdp")`), and those that libxdp's dispatcher calls. A dispatcher can only call
//! programs of its own kind, so the first probe at a hook decides the kind for all others.

use std::io;

use twinprobe_ebpf_common::hook::XdpKind;

use crate::attach::dispatcher::entry::DispatcherEntry;
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::hook::xdp;

/// The words for programs of each kind.
pub const fn words(kind: XdpKind) -> &'static str {
    match kind {
        XdpKind::Single => "in SEC(\"xdp\")",
        XdpKind::Frags => "in SEC(\"xdp.frags\")",
        XdpKind::Joined => "loaded beside libxdp",
    }
}

/// Returns the change that makes a program of this kind compatible with programs of the kind
/// `others`.
const fn cure(kind: XdpKind, others: XdpKind) -> &'static str {
    match (kind, others) {
        (XdpKind::Joined, _) => {
            "name the interfaces of libxdp in a probe of their own, use hook tc"
        }
        (_, XdpKind::Joined) => "use hook tc",
        (XdpKind::Frags, _) => {
            "write SEC(\"xdp\") (with twinprobe.h: define TWINPROBE_SINGLE_BUFFER), or use hook tc"
        }
        (XdpKind::Single, _) => {
            "write SEC(\"xdp.frags\") and take lengths from bpf_xdp_get_buff_len, or use hook tc"
        }
    }
}

/// Returns the kind of programs that are called together.
pub fn of(entries: &[DispatcherEntry]) -> XdpKind {
    entries.first().map_or(XdpKind::Single, |entry| entry.kind)
}

/// Refuses a program of this kind beside programs of another kind.
pub fn check<'a>(
    place: &HookPoint,
    entries: impl IntoIterator<Item = &'a DispatcherEntry>,
    kind: XdpKind,
) -> Result<(), AttachError> {
    let others: Vec<&DispatcherEntry> = entries
        .into_iter()
        .filter(|entry| entry.kind != kind)
        .collect();
    let Some(other) = others.first().map(|entry| entry.kind) else {
        return Ok(());
    };
    let others: Vec<&str> = others.iter().map(|entry| &*entry.probe).collect();
    Err(AttachError::Occupied(format!(
        "the program is {}, and the XDP hook of {} has programs {} (probes: {}); the kernel can't mix them: {}, or move those \
         probes",
        words(kind),
        place.interface,
        words(other),
        others.join(", "),
        cure(kind, other),
    )))
}

/// Refuses to replace the programs of `entries` at a link by programs of this kind: a link keeps
/// its attach type.
pub fn check_link(
    place: &HookPoint,
    entries: &[DispatcherEntry],
    kind: XdpKind,
) -> Result<(), AttachError> {
    let is_joined = |kind| kind == XdpKind::Joined;
    let Some(other) = entries
        .iter()
        .find(|entry| is_joined(entry.kind) != is_joined(kind))
    else {
        return Ok(());
    };
    Err(AttachError::Occupied(format!(
        "the program is {}, and that of {} at the XDP hook of {} is {}; the kernel can't exchange one for the other: delete {} first, or {}",
        words(kind),
        other.probe,
        place.interface,
        words(other.kind),
        other.probe,
        cure(kind, other.kind),
    )))
}

/// Makes the error for a link that refuses its next program. `single` is true if the link is native
/// and the program is for packets of a single buffer.
pub fn not_replaced(place: &HookPoint, single: bool, error: io::Error) -> AttachError {
    let reason = || {
        place
            .netns
            .run(|| xdp::single_buffer(place, &error))
            .ok()
            .flatten()
    };
    match single.then(reason).flatten() {
        Some(reason) => AttachError::Unsupported(format!(
            "{reason}, or delete the probe first: a new one is attached in generic mode"
        )),
        None => place.failed(error),
    }
}
