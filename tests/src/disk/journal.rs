//! The place of a file system's journal on the disk, so that a disk can fail elsewhere only: a file
//! system that can't write its journal gives up for good, and no program can continue with it.

use std::ops::Range;

use super::image::Image;

/// Returns the places of the journal of an ext4 or xfs, in bytes; nothing for others.
pub fn places(image: &Image) -> Vec<Range<u64>> {
    let superblock = image.read(0, 4096);
    if superblock.starts_with(b"XFSB") {
        std::iter::once(xfs(&superblock)).collect()
    } else if superblock[1024 + 0x38..][..2] == [0x53, 0xef] {
        ext4(&superblock[1024..])
    } else {
        Vec::new()
    }
}

/// The superblock of xfs contains the first block of the log as a number in its allocation group.
fn xfs(superblock: &[u8]) -> Range<u64> {
    let u32_at = |at: usize| {
        u64::from(u32::from_be_bytes(
            superblock[at..at + 4].try_into().expect("4 bytes"),
        ))
    };
    let (block_size, group_blocks, log_blocks) = (u32_at(4), u32_at(84), u32_at(96));
    let start = u64::from_be_bytes(superblock[48..56].try_into().expect("8 bytes"));
    let group_bits = superblock[124];
    let block = (start >> group_bits) * group_blocks + (start & ((1 << group_bits) - 1));
    block * block_size..(block + log_blocks) * block_size
}

/// The superblock of ext4 has a copy of the extents of the journal's inode.
fn ext4(superblock: &[u8]) -> Vec<Range<u64>> {
    const EXTENTS: usize = 0x10c;
    let u16_at = |at: usize| u64::from(u16::from_le_bytes([superblock[at], superblock[at + 1]]));
    let u32_at = |at: usize| {
        u64::from(u32::from_le_bytes(
            superblock[at..at + 4].try_into().expect("4 bytes"),
        ))
    };
    let block_size = 1024 << u32_at(0x18);
    let (magic, entries, depth) = (u16_at(EXTENTS), u16_at(EXTENTS + 2), u16_at(EXTENTS + 6));
    assert!(
        magic == 0xf30a && depth == 0 && entries <= 4,
        "the journal is in a few extents"
    );
    let extent = |n: usize| {
        let at = EXTENTS + 12 * (n + 1);
        let block = (u16_at(at + 6) << 32) | u32_at(at + 8);
        block * block_size..(block + u16_at(at + 4)) * block_size
    };
    (0..entries as usize).map(extent).collect()
}
