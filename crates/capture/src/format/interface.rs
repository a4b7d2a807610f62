//! The interface of a captured packet, as the file describes it.

use pcap_parser::{InterfaceDescriptionBlock, Linktype, PcapHeader};

/// The number of nanoseconds in a second.
const SECOND: i128 = 1_000_000_000;

/// The properties of an interface that affect the reading of its packets.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    pub link_type: Linktype,
    resolution: Resolution,
    /// The seconds to be added to each stamp.
    offset: i64,
    /// The most bytes of a packet that were captured; 0 for no limit.
    pub snap_length: u32,
}

/// The number of ticks in a second.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    TenTo(u32),
    TwoTo(u32),
}

impl Interface {
    pub fn of_pcap(header: &PcapHeader) -> Self {
        Self {
            // The upper bits describe the frame check sequence.
            link_type: Linktype(header.network.0 & 0xffff),
            resolution: Resolution::TenTo(if header.is_nanosecond_precision() {
                9
            } else {
                6
            }),
            offset: 0,
            snap_length: header.snaplen,
        }
    }

    pub fn of_pcapng(block: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Self {
        let exponent = u32::from(block.if_tsresol & 0x7f);
        // The library reads the number in one byte order.
        let offset = if big_endian {
            block.if_tsoffset.swap_bytes()
        } else {
            block.if_tsoffset
        };
        Self {
            link_type: block.linktype,
            resolution: match block.if_tsresol & 0x80 {
                0 => Resolution::TenTo(exponent),
                _ => Resolution::TwoTo(exponent),
            },
            offset,
            snap_length: block.snaplen,
        }
    }

    /// Returns nanoseconds since the Unix epoch; a time out of range becomes the first or the last
    /// possible moment.
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let ticks = i128::from(ticks);
        let since = match self.resolution {
            Resolution::TenTo(exponent @ 0..=9) => ticks * 10_i128.pow(9 - exponent),
            Resolution::TenTo(exponent) => 10_i128
                .checked_pow(exponent - 9)
                .map_or(0, |part| ticks / part),
            // A stamp has 64 bits, so with an exponent this large all ticks together are less than
            // a nanosecond.
            Resolution::TwoTo(exponent) => (ticks * SECOND).checked_shr(exponent).unwrap_or(0),
        };
        let moment = since + i128::from(self.offset) * SECOND;
        u64::try_from(moment.max(0)).unwrap_or(u64::MAX)
    }
}
