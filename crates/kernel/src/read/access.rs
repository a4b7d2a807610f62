//! The strategies by which map types are read and reset, chosen from the results of the trials.

use std::os::fd::BorrowedFd;

use serde::Serialize;
use twinprobe_ebpf_common::{MapFamily, MapKind};

use crate::sys::batch::{self, BatchCursor};

/// The operations that trials have found to work on a map type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// `BPF_MAP_GET_NEXT_KEY`, from the first key to the last.
    pub iterate: bool,
    /// `BPF_MAP_LOOKUP_AND_DELETE_ELEM`, which pops from maps without keys.
    pub lookup_and_delete: bool,
    pub lookup_batch: bool,
    pub lookup_and_delete_batch: bool,
    pub update_batch: bool,
    pub delete_batch: bool,
}

/// The operations by which a map type is read and reset. The variants are in the order of
/// preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// One call reads and deletes a batch; without a reset, one call only reads a batch.
    LookupAndDeleteBatch,
    /// A batch is read, and then deleted.
    LookupBatchThenDeleteBatch,
    /// A batch is read, and then overwritten with zeros.
    LookupBatchThenZeroBatch,
    /// Batches are only read, because nothing must be reset.
    LookupBatch,
    /// Each entry is read, then deleted or zeroed.
    Iterative,
    /// Each value is popped, which removes it from the map.
    Pop,
    /// The map's memory is shared with the programs.
    Mmap,
}

/// The operations of a map, and the strategy that was chosen for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapAccess {
    pub operations: Operations,
    pub strategy: Strategy,
}

impl Strategy {
    /// Returns the best strategy for `kind` with these operations.
    pub const fn choose(kind: MapKind, operations: Operations) -> Self {
        let Operations {
            lookup_batch,
            lookup_and_delete_batch,
            update_batch,
            delete_batch,
            ..
        } = operations;
        match kind.family() {
            MapFamily::Hash if lookup_batch && lookup_and_delete_batch => {
                Self::LookupAndDeleteBatch
            }
            MapFamily::Hash | MapFamily::Trie if lookup_batch && delete_batch => {
                Self::LookupBatchThenDeleteBatch
            }
            MapFamily::Array if lookup_batch && update_batch => Self::LookupBatchThenZeroBatch,
            MapFamily::Nested if lookup_batch => Self::LookupBatch,
            MapFamily::Hash | MapFamily::Trie | MapFamily::Array | MapFamily::Nested => {
                Self::Iterative
            }
            MapFamily::Fifo => Self::Pop,
            MapFamily::Global => Self::Mmap,
        }
    }
}

impl MapAccess {
    pub const fn new(kind: MapKind, operations: Operations) -> Self {
        Self {
            operations,
            strategy: Strategy::choose(kind, operations),
        }
    }

    /// Returns the access without batches, if there is such a strategy.
    #[must_use]
    pub const fn iterative(self) -> Self {
        match self.strategy {
            Strategy::Pop | Strategy::Mmap => self,
            _ => Self {
                strategy: Strategy::Iterative,
                ..self
            },
        }
    }

    /// Returns the access that works on this map. The map may lack operations of its type, for
    /// example because of `BPF_F_RDONLY`. Calls with a count of zero try each operation, and read
    /// and change nothing.
    pub fn confirmed(self, map: BorrowedFd<'_>) -> Self {
        let lookup = |delete| {
            batch::map_lookup_batch(map, &mut BatchCursor::new(0), &mut [], &mut [], 0, delete)
                .result
                .is_ok()
        };
        let works = match self.strategy {
            Strategy::LookupAndDeleteBatch => lookup(false) && lookup(true),
            Strategy::LookupBatchThenDeleteBatch => {
                lookup(false) && batch::map_delete_batch(map, &[], 0).result.is_ok()
            }
            Strategy::LookupBatchThenZeroBatch => {
                lookup(false) && batch::map_update_batch(map, &[], &[], 0).result.is_ok()
            }
            Strategy::LookupBatch => lookup(false),
            Strategy::Iterative | Strategy::Pop | Strategy::Mmap => true,
        };
        if works { self } else { self.iterative() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_what_there_is_is_chosen() {
        let none = Operations {
            iterate: true,
            ..Operations::default()
        };
        let lookup = Operations {
            lookup_batch: true,
            ..none
        };
        let delete = Operations {
            delete_batch: true,
            ..lookup
        };
        let both = Operations {
            lookup_and_delete_batch: true,
            ..delete
        };
        let update = Operations {
            update_batch: true,
            ..lookup
        };
        let cases = [
            (MapKind::Hash, both, Strategy::LookupAndDeleteBatch),
            (MapKind::Hash, delete, Strategy::LookupBatchThenDeleteBatch),
            (MapKind::Hash, lookup, Strategy::Iterative),
            (MapKind::LpmTrie, both, Strategy::LookupBatchThenDeleteBatch),
            (MapKind::Array, update, Strategy::LookupBatchThenZeroBatch),
            (MapKind::Array, lookup, Strategy::Iterative),
            (MapKind::HashOfMaps, lookup, Strategy::LookupBatch),
            (MapKind::ArrayOfMaps, none, Strategy::Iterative),
            (MapKind::Queue, none, Strategy::Pop),
            (MapKind::Global, none, Strategy::Mmap),
        ];
        for (kind, operations, expected) in cases {
            assert_eq!(
                Strategy::choose(kind, operations),
                expected,
                "{kind:?} {operations:?}"
            );
        }
    }

    #[test]
    fn names_are_those_of_the_api() {
        let name = |strategy| serde_json::to_value(strategy).unwrap();
        assert_eq!(
            name(Strategy::LookupAndDeleteBatch),
            "lookup_and_delete_batch"
        );
        assert_eq!(
            name(Strategy::LookupBatchThenZeroBatch),
            "lookup_batch_then_zero_batch"
        );
    }
}
