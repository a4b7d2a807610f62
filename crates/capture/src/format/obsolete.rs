//! The packet block that pcapng had first, which the library does not read, and the flags of
//! packets.

use twinprobe_ebpf_common::Direction;

/// The type of the block.
const TYPE: u32 = 2;
/// The number of bytes of the block before the bytes of the packet.
pub const HEAD: usize = 20;
/// The option of a packet that has its direction in the two lowest bits.
pub const FLAGS: u16 = 2;
/// The size of the head of an option, in bytes, and the multiple to which its value is padded.
const OPTION: usize = 4;

/// The byte order of a section.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    pub big_endian: bool,
}

/// A packet of such a block, whose bytes begin at [`HEAD`].
pub struct ObsoletePacket {
    pub interface: usize,
    /// The upper and the lower part of the stamp.
    pub times: (u32, u32),
    pub length: u32,
    pub captured: usize,
    pub direction: Option<Direction>,
}

impl Words {
    fn short(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }

    fn word(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    /// Tells whether a type is that of the block. The library gives unknown types of blocks in one
    /// byte order.
    pub const fn is_obsolete(self, block_type: u32) -> bool {
        block_type
            == if self.big_endian {
                TYPE.swap_bytes()
            } else {
                TYPE
            }
    }

    /// Returns the direction in the value of the option [`FLAGS`].
    pub fn direction(self, flags: &[u8]) -> Option<Direction> {
        match self.word(flags, 0)? & 3 {
            1 => Some(Direction::Ingress),
            2 => Some(Direction::Egress),
            _ => None,
        }
    }
}

/// Reads the content of a block; `None` if it is shorter than its length field.
pub fn parse(words: Words, block: &[u8]) -> Option<ObsoletePacket> {
    // The block has a short number of the interface, and then the number of packets lost before
    // this packet.
    let captured = words.word(block, 12)? as usize;
    let options = block.get(HEAD..)?.get(captured..)?;
    let options = options
        .get(captured.next_multiple_of(OPTION) - captured..)
        .unwrap_or_default();
    Some(ObsoletePacket {
        interface: words.short(block, 0)?.into(),
        times: (words.word(block, 4)?, words.word(block, 8)?),
        length: words.word(block, 16)?,
        captured,
        direction: flags(words, options).and_then(|flags| words.direction(flags)),
    })
}

/// Finds the flags among options.
fn flags(words: Words, mut options: &[u8]) -> Option<&[u8]> {
    loop {
        let (code, length) = (
            words.short(options, 0)?,
            usize::from(words.short(options, 2)?),
        );
        let value = options.get(OPTION..OPTION + length)?;
        match code {
            0 => return None,
            FLAGS => return Some(value),
            _ => options = options.get(OPTION + length.next_multiple_of(OPTION)..)?,
        }
    }
}
