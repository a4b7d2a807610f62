//! How the content of a metric's map gets into an answer, and what becomes of the map.

use twinprobe_ebpf_common::MapFamily;

use twinprobe_ebpf_common::metric::{AfterRead, Visibility};

use crate::load::maps::TwinMap;

/// What a reading does to the map of a metric. A reading that resets any map closes a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extraction {
    /// Each twin has its own map, which is at rest after the flip: it is read, and emptied once the window is stored.
    Clear,
    /// Packets change the map meanwhile: its content is moved into a journal, which the window is made of.
    Drain,
    /// Nothing is taken out of the map: it is shown as it is.
    Copy,
    /// The map is emptied with each window and shown nowhere.
    Discard,
    /// The events are read as a stream.
    Stream,
}

impl Extraction {
    /// Reading a QUEUE or STACK takes its values out, whatever `after` says.
    pub fn of(map: &TwinMap, after: AfterRead, visibility: Visibility) -> Self {
        match (map, after, visibility) {
            (TwinMap::Events(_), ..) => Self::Stream,
            (TwinMap::Private(_), ..) => Self::Clear,
            (_, AfterRead::Reset, Visibility::Export) => Self::Drain,
            (_, AfterRead::Reset, Visibility::Hidden) => Self::Discard,
            (TwinMap::Shared(map), AfterRead::Keep, Visibility::Export)
                if map.layout().kind.family() == MapFamily::Fifo =>
            {
                Self::Drain
            }
            (TwinMap::Shared(_), AfterRead::Keep, _) => Self::Copy,
        }
    }

    /// Tells whether a reading takes anything out of the map. A probe has windows if this holds for any metric.
    pub const fn resets(self) -> bool {
        matches!(self, Self::Clear | Self::Drain | Self::Discard)
    }
}
