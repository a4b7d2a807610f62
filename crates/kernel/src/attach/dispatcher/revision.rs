//! The programs of dispatchers. Dispatchers that call the same probes in the same way share a
//! program. The reason: when XDP gets or loses a program that no other interface has, the kernel
//! waits for a grace period, for one interface after the other.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use twinprobe_ebpf_common::hook::Verdict;

use crate::attach::dispatcher::entry::DispatcherEntry;
use crate::attach::dispatcher::kinds;
use crate::attach::dispatcher::program::{self, Call, DebugInfo};
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::{self, HookPoint};
use crate::load::verifier;
use crate::sys::prog::{self, ProgLoad};
use crate::trial::programs;

/// A dispatcher's program, which exists as long as a dispatcher uses it.
#[derive(Debug)]
pub struct DispatcherProgram {
    program: OwnedFd,
    pub id: u32,
}

/// Everything that determines a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hook: &'static str,
    calls: Vec<CallKey>,
    /// The place, if the program is for this place only.
    place: Option<hook_point::HookKey>,
}

/// The parts of each call: the slots, the page and the offset of the epoch word, two flags (the
/// verdict counts, the verdict stays unchanged), and the sampling. The slots determine whether the
/// programs take packets of several buffers.
type CallKey = (u32, usize, i32, bool, bool, Option<NonZeroU32>);

/// The programs that dispatchers use.
#[derive(Debug)]
pub struct DispatcherPrograms {
    known: Mutex<BTreeMap<Key, Weak<DispatcherProgram>>>,
    /// False if every dispatcher has a program of its own.
    shared: bool,
}

impl DispatcherProgram {
    fn new(program: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            id: prog::prog_identity(program.as_fd())?.id,
            program,
        })
    }

    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Tells whether `other` has the same instructions and the same maps.
    fn does_the_same(&self, other: BorrowedFd<'_>) -> io::Result<bool> {
        let of = |program| {
            let (tag, (_, mut maps)) =
                (prog::prog_identity(program)?.tag, prog::prog_ids(program)?);
            maps.sort_unstable();
            io::Result::Ok((tag, maps))
        };
        Ok(of(self.program())? == of(other)?)
    }
}

impl DispatcherPrograms {
    pub fn new(shared: bool) -> Self {
        Self {
            known: Mutex::default(),
            shared,
        }
    }

    /// Returns the program for `place` that calls `entries`.
    pub fn get(
        &self,
        place: &HookPoint,
        entries: &[DispatcherEntry],
    ) -> Result<Arc<DispatcherProgram>, AttachError> {
        let key = self.key(place, entries);
        if let Some(known) = self.known.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let program = load(place, entries)?;
        let revision =
            Arc::new(DispatcherProgram::new(program).map_err(|error| place.failed(error))?);
        self.keep(key, &revision);
        Ok(revision)
    }

    /// Does the same as [`Self::get`] at a place where `present` is attached: returns `present` if
    /// it is the right program.
    pub fn get_or_adopt(
        &self,
        place: &HookPoint,
        entries: &[DispatcherEntry],
        present: Option<OwnedFd>,
    ) -> Result<Arc<DispatcherProgram>, AttachError> {
        let wanted = self.get(place, entries)?;
        let Some(present) = present else {
            return Ok(wanted);
        };
        let adopt = || {
            let present = DispatcherProgram::new(present)?;
            Ok(
                (present.id != wanted.id && wanted.does_the_same(present.program())?)
                    .then_some(present),
            )
        };
        match adopt().map_err(|error| place.failed(error))? {
            Some(present) => {
                let present = Arc::new(present);
                self.keep(self.key(place, entries), &present);
                Ok(present)
            }
            None => Ok(wanted),
        }
    }

    fn key(&self, place: &HookPoint, entries: &[DispatcherEntry]) -> Key {
        let call = |entry: &DispatcherEntry| {
            let enforces = entry.verdict == Verdict::Enforce;
            (
                entry.slots.id,
                entry.page.number,
                entry.epoch_offset,
                enforces,
                entry.stands,
                entry.sample,
            )
        };
        let calls = entries.iter().map(call).collect();
        Key {
            hook: place.hook.name(),
            calls,
            place: (!self.shared).then(|| place.key()),
        }
    }

    fn keep(&self, key: Key, revision: &Arc<DispatcherProgram>) {
        let mut known = self.known.lock();
        known.retain(|_, revision| revision.strong_count() > 0);
        known.insert(key, Arc::downgrade(revision));
    }
}

fn load(place: &HookPoint, entries: &[DispatcherEntry]) -> Result<OwnedFd, AttachError> {
    let kind = place.hook.kind();
    let calls: Vec<Call<'_>> = entries.iter().map(DispatcherEntry::call).collect();
    let program = program::build(place.hook, &calls);
    let debug_info = DebugInfo::new(&program.functions);
    let btf = prog::btf_load(&debug_info.btf).map_err(|error| place.failed(error))?;
    let loaded = ProgLoad {
        btf: Some(btf.as_fd()),
        func_info: debug_info.records(),
        ..ProgLoad::new("tp_dispatcher", kind, &program.instructions)
    };
    verifier::load(&programs::of_kind(loaded, kinds::of(entries))).map_err(|refusal| {
        tracing::error!(log = refusal.log, "the kernel refused the dispatcher");
        AttachError::Unsupported(format!(
            "this kernel does not take the dispatcher: {}",
            refusal.message
        ))
    })
}
