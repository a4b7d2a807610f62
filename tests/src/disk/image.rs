//! The content of a disk with a volatile cache: the content for readers, and the content after a
//! loss of power.

use std::collections::HashMap;
use std::sync::Arc;

use crate::random::Random;

/// The unit in which the content is kept.
const BLOCK: u64 = 4096;
/// The unit that a disk writes as a whole: a write of several may be torn between two.
const SECTOR: usize = 512;

/// Blocks by number. A block of zeros need not be there, so that an image takes memory only for
/// written blocks.
type Blocks = HashMap<u64, Arc<[u8; BLOCK as usize]>>;

/// A write that no flush has made durable yet.
#[derive(Clone, Debug)]
struct Write {
    offset: u64,
    data: Vec<u8>,
}

/// The content of a disk.
#[derive(Debug)]
pub struct Image {
    size: u64,
    /// The content that reads see.
    current: Blocks,
    /// The content at the last flush.
    durable: Blocks,
    /// The writes since the last flush, in their order.
    pending: Vec<Write>,
}

/// The writes that a loss of power has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub kept: usize,
    pub torn: usize,
    pub dropped: usize,
}

impl Image {
    /// Makes an image of zeros.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            current: Blocks::new(),
            durable: Blocks::new(),
            pending: Vec::new(),
        }
    }

    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the bytes at `offset`, fewer at the end of the disk.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let length = (length as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut data = vec![0; length];
        for (number, within, part) in pieces(offset, length) {
            if let Some(block) = self.current.get(&number) {
                let piece = &mut data[part];
                piece.copy_from_slice(&block[within..within + piece.len()]);
            }
        }
        data
    }

    /// Writes into the cache of the disk. Returns false if the disk is too small.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        if offset + data.len() as u64 > self.size {
            return false;
        }
        put(&mut self.current, offset, data);
        self.pending.push(Write {
            offset,
            data: data.to_vec(),
        });
        true
    }

    /// Makes all writes so far durable.
    pub fn flush(&mut self) {
        for write in self.pending.drain(..) {
            for (number, _, _) in pieces(write.offset, write.data.len()) {
                if let Some(block) = self.current.get(&number) {
                    self.durable.insert(number, Arc::clone(block));
                }
            }
        }
    }

    /// Loses power: of the writes since the last flush some stay, some are lost, and some stay in
    /// part.
    ///
    /// The remaining writes are written in their order. A disk may write in another order. But a
    /// sector with two writes has the later one in the end, or the earlier one if the later one is
    /// lost: that is also a subset.
    pub fn lose_power(&mut self, seed: u64) -> Lost {
        let mut random = Random::seeded(seed);
        // Small seeds differ in few bits, so the first random numbers are similar.
        for _ in 0..8 {
            random.below(2);
        }
        let mut lost = Lost::default();
        // Sometimes nearly the whole cache was written, sometimes nearly nothing.
        let kept = random.below(5);
        for write in std::mem::take(&mut self.pending) {
            if random.below(4) < kept {
                lost.kept += 1;
                put(&mut self.durable, write.offset, &write.data);
            } else if random.below(4) == 0 && write.data.len() > SECTOR {
                lost.torn += 1;
                for (n, sector) in write.data.chunks(SECTOR).enumerate() {
                    if random.below(2) == 0 {
                        put(
                            &mut self.durable,
                            write.offset + (n * SECTOR) as u64,
                            sector,
                        );
                    }
                }
            } else {
                lost.dropped += 1;
            }
        }
        self.current = self.durable.clone();
        lost
    }
}

/// Returns the pieces of a range: the block, the place in it, and the part of the range.
fn pieces(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = offset + from as u64;
        let within = (at % BLOCK) as usize;
        let to = length.min(from + BLOCK as usize - within);
        let piece = (from < length).then_some((at / BLOCK, within, from..to));
        from = to;
        piece
    })
}

fn put(blocks: &mut Blocks, offset: u64, data: &[u8]) {
    for (number, within, part) in pieces(offset, data.len()) {
        let block = blocks
            .entry(number)
            .or_insert_with(|| Arc::new([0; BLOCK as usize]));
        let piece = &data[part];
        Arc::make_mut(block)[within..within + piece.len()].copy_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_see_writes_across_blocks() {
        let mut image = Image::new(3 * BLOCK);
        assert_eq!(image.read(0, 10), [0; 10]);
        let data: Vec<u8> = (0..5000_usize).map(|n| n as u8).collect();
        assert!(image.write(BLOCK - 100, &data));
        assert_eq!(image.read(BLOCK - 100, data.len()), data);
        assert_eq!(image.read(3 * BLOCK - 3, 10), [0; 3]);
        assert!(!image.write(3 * BLOCK - 1, &[1, 2]));
    }

    #[test]
    fn what_was_flushed_stays_and_the_rest_may_go() {
        let (mut kept, mut gone, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let mut image = Image::new(100 * BLOCK);
            image.write(0, &[1; 4096]);
            image.flush();
            image.write(0, &[2; 4096]);
            image.write(8192, &[3; 1024]);
            image.lose_power(seed);
            match image.read(8192, 1024) {
                data if data == [3; 1024] => kept += 1,
                data if data == [0; 1024] => gone += 1,
                _ => torn += 1,
            }
            assert!(
                image.read(0, 4096).iter().all(|byte| [1, 2].contains(byte)),
                "seed {seed}"
            );
            let after = image.read(0, 16384);
            image.lose_power(seed + 1);
            assert_eq!(image.read(0, 16384), after, "nothing was written meanwhile");
        }
        assert!(kept > 10 && gone > 10 && torn > 5, "{kept} {gone} {torn}");
    }

    #[test]
    fn a_later_write_is_not_lost_for_an_earlier_one() {
        let mut found = [0; 3];
        for seed in 0..200 {
            let mut image = Image::new(BLOCK);
            image.write(0, &[1; 512]);
            image.write(0, &[2; 512]);
            image.lose_power(seed);
            found[usize::from(image.read(0, 1)[0])] += 1;
        }
        assert!(found.iter().all(|times| *times > 5), "{found:?}");
    }
}
