//! The two kinds of XDP programs: for packets of several buffers (`SEC("xdp.frags")`) and of a single buffer
//! (`SEC("xdp")`). A dispatcher can only call programs of its own kind, so the first probe at a hook decides the kind
//! for all others.

use std::io;

use crate::attach::dispatcher::entry::DispatcherEntry;
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::hook::xdp;

/// The section of a program of each kind.
pub const fn section(frags: bool) -> &'static str {
    if frags { "SEC(\"xdp.frags\")" } else { "SEC(\"xdp\")" }
}

/// The change that makes a program fit to those of the other kind.
const fn cure(frags: bool) -> &'static str {
    if frags {
        "write SEC(\"xdp\") (with twinprobe.h: define TWINPROBE_SINGLE_BUFFER), or use hook tc"
    } else {
        "write SEC(\"xdp.frags\") and take lengths from bpf_xdp_get_buff_len, or use hook tc"
    }
}

/// Tells whether programs that are called together take packets of several buffers.
pub fn is_frags(entries: &[DispatcherEntry]) -> bool {
    entries.iter().any(|entry| entry.frags)
}

/// Refuses a program of this kind beside programs of the other kind.
pub fn check<'a>(
    place: &HookPoint,
    entries: impl IntoIterator<Item = &'a DispatcherEntry>,
    frags: bool,
) -> Result<(), AttachError> {
    let others = entries.into_iter().filter(|entry| entry.frags != frags);
    let others: Vec<&str> = others.map(|entry| &*entry.probe).collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(AttachError::Occupied(format!(
        "the program is in {}, and the XDP hook of {} has programs in {} (probes: {}); the kernel takes no mix: {}, or move those \
         probes",
        section(frags),
        place.interface,
        section(!frags),
        others.join(", "),
        cure(frags),
    )))
}

/// Makes the error for a link that refuses its next program. `single`: the link is native, and the program is for
/// packets of a single buffer.
pub fn not_replaced(place: &HookPoint, single: bool, error: io::Error) -> AttachError {
    let reason = || place.netns.run(|| xdp::single_buffer(place, &error)).ok().flatten();
    match single.then(reason).flatten() {
        Some(reason) => AttachError::Unsupported(format!(
            "{reason}, or delete the probe first: a new one is attached in generic mode"
        )),
        None => place.failed(error),
    }
}
