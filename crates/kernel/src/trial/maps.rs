//! Trials of the operations of each map type, on tiny maps. Every trial gets a map of its own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::{io, thread};

use aya_obj::generated::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC};
use twinprobe_ebpf_common::{MapFamily, MapKind};

use crate::read::access::Operations;
use crate::sys::batch::{self, BatchCursor};
use crate::sys::map::{self, MapCreate};
use crate::sys::mapping::{Mapping, MappingAccess};

/// The number of entries that a trial requests at once, which is larger than the number in the map.
const ROOM: usize = 8;

/// Returns the operations that work on maps of this kind. Fails if the kernel has no maps of this
/// kind.
pub fn operations(kind: MapKind, possible_cpus: usize) -> io::Result<Operations> {
    if kind.family() == MapFamily::Global {
        return mmap().map(|()| Operations::default());
    }
    Tiny::new(kind, possible_cpus)?.finds_inner()?;
    // The trials run side by side: writing to a map of maps waits for a grace period, which takes
    // milliseconds.
    Ok(thread::scope(|scope| {
        let start = |trial: fn(&Tiny) -> bool| {
            scope.spawn(move || Tiny::new(kind, possible_cpus).is_ok_and(|map| trial(&map)))
        };
        let trials = [
            start(Tiny::iterates),
            start(Tiny::looks_up_and_deletes),
            start(|map| map.looks_up_batches(false)),
            start(|map| map.looks_up_batches(true) && map.is_empty()),
            start(Tiny::updates_batches),
            start(Tiny::deletes_batches),
        ];
        let [
            iterate,
            lookup_and_delete,
            lookup_batch,
            lookup_and_delete_batch,
            update_batch,
            delete_batch,
        ] = trials.map(|trial| trial.join().unwrap_or(false));
        Operations {
            iterate,
            lookup_and_delete,
            lookup_batch,
            lookup_and_delete_batch,
            update_batch,
            delete_batch,
        }
    }))
}

/// Tries whether an array's memory can be shared with this process (`BPF_F_MMAPABLE`). Fails if it
/// can't.
fn mmap() -> io::Result<()> {
    let array = MapCreate::array("tp_try", 8, 1);
    let map = map::map_create(&MapCreate {
        flags: BPF_F_MMAPABLE,
        ..array
    })?;
    Mapping::new(map.as_fd(), 0, 8, MappingAccess::ReadWrite).map(drop)
}

/// A map with a few entries.
struct Tiny {
    kind: MapKind,
    map: OwnedFd,
    inner: Option<OwnedFd>,
    keys: Vec<Vec<u8>>,
    /// The value of each entry.
    value: Vec<u8>,
}

impl Tiny {
    fn new(kind: MapKind, possible_cpus: usize) -> io::Result<Self> {
        let (create, keys) = description(kind)?;
        let inner = kind
            .is_nested()
            .then(|| map::map_create(&MapCreate::array("tp_try", 8, 1)))
            .transpose()?;
        let map = map::map_create(&MapCreate {
            inner: inner.as_ref().map(AsFd::as_fd),
            ..create
        })?;
        let value = match &inner {
            Some(inner) => inner.as_raw_fd().to_ne_bytes().to_vec(),
            None => [1_u64.to_ne_bytes()].concat().repeat(if kind.is_percpu() {
                possible_cpus
            } else {
                1
            }),
        };
        for key in &keys {
            map::map_update(map.as_fd(), key, &value)?;
        }
        Ok(Self {
            kind,
            map,
            inner,
            keys,
            value,
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Checks that a lookup in a map of maps gives the id of the inner map, which readers need.
    fn finds_inner(&self) -> io::Result<()> {
        let Some(inner) = &self.inner else {
            return Ok(());
        };
        let mut id = [0; 4];
        let found = map::map_lookup(self.fd(), &self.keys[0], &mut id)?;
        match found && u32::from_ne_bytes(id) == map::map_id(inner.as_fd())? {
            true => Ok(()),
            false => Err(io::Error::other(
                "the kernel does not report the maps in a map of maps",
            )),
        }
    }

    fn iterates(&self) -> bool {
        let mut next = vec![0; self.keys[0].len()];
        let mut found = Vec::new();
        while map::map_next_key(self.fd(), found.last().map(Vec::as_slice), &mut next)
            .unwrap_or(false)
            && found.len() < ROOM
        {
            found.push(next.clone());
        }
        self.kind.has_keys() && self.keys.iter().all(|key| found.contains(key))
    }

    fn looks_up_and_deletes(&self) -> bool {
        let mut value = vec![0; self.value.len()];
        map::map_lookup_and_delete(self.fd(), &self.keys[0], &mut value).unwrap_or(false)
            && value == self.value
    }

    /// Tells whether a batch returns exactly the entries of the map.
    fn looks_up_batches(&self, delete: bool) -> bool {
        let key_size = self.keys[0].len();
        let (mut keys, mut values) = (vec![0; ROOM * key_size], vec![0; ROOM * self.value.len()]);
        let mut cursor = BatchCursor::new(key_size);
        let outcome =
            batch::map_lookup_batch(self.fd(), &mut cursor, &mut keys, &mut values, ROOM, delete);
        let ended = matches!(outcome.errno(), 0 | libc::ENOENT);
        let found: Vec<&[u8]> = keys.chunks(key_size.max(1)).take(outcome.count).collect();
        // A lookup in a map of maps returns the id of the inner map, while the update took a
        // descriptor.
        let same = |value: &[u8]| self.inner.is_some() || value == self.value;
        ended
            && found.len() == self.keys.len()
            && self.keys.iter().all(|key| found.contains(&key.as_slice()))
            && values
                .chunks(self.value.len())
                .take(outcome.count)
                .all(same)
    }

    fn updates_batches(&self) -> bool {
        let values = self.value.repeat(self.keys.len());
        let outcome =
            batch::map_update_batch(self.fd(), &self.keys.concat(), &values, self.keys.len());
        self.kind.has_keys() && outcome.result.is_ok() && outcome.count == self.keys.len()
    }

    fn deletes_batches(&self) -> bool {
        let outcome = batch::map_delete_batch(self.fd(), &self.keys.concat(), self.keys.len());
        outcome.result.is_ok() && outcome.count == self.keys.len() && self.is_empty()
    }

    fn is_empty(&self) -> bool {
        let mut next = vec![0; self.keys[0].len()];
        matches!(map::map_next_key(self.fd(), None, &mut next), Ok(false))
    }
}

/// Returns the description of a tiny map of this kind, and the keys of its entries.
fn description(kind: MapKind) -> io::Result<(MapCreate<'static>, Vec<Vec<u8>>)> {
    let map_type = kind.bpf_type().unwrap_or_default();
    let hash = MapCreate {
        name: "tp_try",
        map_type,
        key_size: 4,
        value_size: 8,
        ..MapCreate::default()
    };
    // LRU maps spread their entries over CPUs: a small one evicts entries before it is full.
    let hash = MapCreate {
        max_entries: 256,
        ..hash
    };
    let array = MapCreate {
        max_entries: 2,
        ..hash
    };
    let number = |number: u32| number.to_ne_bytes().to_vec();
    Ok(match kind.family() {
        MapFamily::Hash => (hash, vec![number(1), number(2)]),
        MapFamily::Array => (array, vec![number(0), number(1)]),
        MapFamily::Trie => {
            let prefix = |length: u32| [length.to_ne_bytes(), [10, 0, 0, 0]].concat();
            let trie = MapCreate {
                key_size: 8,
                flags: BPF_F_NO_PREALLOC,
                ..hash
            };
            (trie, vec![prefix(32), prefix(8)])
        }
        MapFamily::Fifo => (
            MapCreate {
                key_size: 0,
                ..hash
            },
            vec![Vec::new(), Vec::new()],
        ),
        // The first slot of the array stays empty.
        MapFamily::Nested => (
            MapCreate {
                value_size: 4,
                ..array
            },
            vec![number(1)],
        ),
        MapFamily::Global => return Err(io::ErrorKind::Unsupported.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(operations: Operations) -> [bool; 6] {
        let Operations {
            iterate,
            lookup_and_delete,
            lookup_batch,
            ..
        } = operations;
        let Operations {
            lookup_and_delete_batch,
            update_batch,
            delete_batch,
            ..
        } = operations;
        [
            iterate,
            lookup_and_delete,
            lookup_batch,
            lookup_and_delete_batch,
            update_batch,
            delete_batch,
        ]
    }

    /// The trials find every operation of Linux 5.10, and find no invented operation.
    #[test]
    fn operations_are_those_that_the_kernel_has() {
        for kind in MapKind::ALL {
            let found = operations(kind, crate::sys::cpus::possible_cpus().unwrap()).unwrap();
            let keyed = kind.has_keys();
            let hash = kind.family() == MapFamily::Hash;
            let batches = hash || kind == MapKind::Array;
            let least = Operations {
                iterate: keyed,
                lookup_and_delete: kind.family() == MapFamily::Fifo,
                lookup_batch: batches,
                lookup_and_delete_batch: hash,
                update_batch: batches,
                delete_batch: hash,
            };
            let most = Operations {
                iterate: keyed,
                lookup_and_delete: hash || kind.family() == MapFamily::Fifo,
                lookup_batch: keyed,
                lookup_and_delete_batch: hash || kind == MapKind::HashOfMaps,
                update_batch: keyed,
                delete_batch: hash || matches!(kind, MapKind::LpmTrie | MapKind::HashOfMaps),
            };
            let [least, flags, most] = [least, found, most].map(flags);
            let between = (0..flags.len()).all(|i| least[i] <= flags[i] && flags[i] <= most[i]);
            assert!(between, "{kind:?} {found:?}");
        }
    }
}
