//! The parts of packets that the numbers of a program depend on, as `TP_SEES` of `twinprobe.h`
//! notes them in the object.

/// The section that contains the marks: names that end with NUL.
pub const SECTION: &[u8] = b".twinprobe.sees";

/// The parts of packets that a program looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sees {
    /// True if the object has such marks, because it was compiled with `twinprobe.h`.
    pub is_known: bool,
    /// The Ethernet header.
    pub ethernet: bool,
    /// VLAN tags.
    pub tags: bool,
    /// The lengths of packets.
    pub lengths: bool,
    /// The number of frames. The kernel may handle several frames as one packet, which then counts
    /// as several frames.
    pub frames: bool,
    /// The number of packets. The kernel may handle several frames as one packet, which then counts
    /// once.
    pub packets: bool,
}

impl Sees {
    /// Reads the marks of a section. Unknown marks are marks of later versions.
    pub fn parse(section: &[u8]) -> Self {
        let mut sees = Self {
            is_known: true,
            ..Self::default()
        };
        for mark in section.split(|byte| *byte == 0) {
            match mark {
                b"ethernet" => sees.ethernet = true,
                b"tags" => sees.tags = true,
                b"lengths" => sees.lengths = true,
                b"frames" => sees.frames = true,
                b"packets" => sees.packets = true,
                _ => {}
            }
        }
        sees
    }

    /// Tells whether the numbers depend on the number or the lengths of the frames that a packet
    /// stands for.
    pub const fn counts(self) -> bool {
        self.lengths || self.frames || self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_in_any_order_and_number() {
        let sees = Sees::parse(b"lengths\0ethernet\0lengths\0colours\0");
        assert_eq!(
            sees,
            Sees {
                is_known: true,
                ethernet: true,
                lengths: true,
                ..Sees::default()
            }
        );
        assert!(sees.counts() && !Sees::parse(b"ethernet\0tags").counts());
        assert_eq!(
            Sees::parse(b""),
            Sees {
                is_known: true,
                ..Sees::default()
            }
        );
    }
}
