//! Which keys a walk has met.

use std::collections::HashSet;

const SMALL: usize = size_of::<u128>();

/// Keys of one size. The hash is one that whoever chooses the keys, by the packets they send, can't aim at.
pub enum Seen {
    /// Of up to 16 bytes, filled up with zeros: no memory of their own.
    Small(HashSet<u128>),
    Large(HashSet<Box<[u8]>>),
}

impl Seen {
    pub fn new(key_size: usize) -> Self {
        if key_size <= SMALL { Self::Small(HashSet::new()) } else { Self::Large(HashSet::new()) }
    }

    /// Whether `key` is new.
    pub fn insert(&mut self, key: &[u8]) -> bool {
        match self {
            Self::Small(keys) => {
                let mut bytes = [0; SMALL];
                bytes[..key.len()].copy_from_slice(key);
                keys.insert(u128::from_ne_bytes(bytes))
            }
            Self::Large(keys) => keys.insert(key.into()),
        }
    }
}
