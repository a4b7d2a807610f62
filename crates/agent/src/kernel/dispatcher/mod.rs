//! One dispatcher program for each interface and hook that has probes. Adding, removing and replacing a
//! probe loads a new revision and puts it behind the same link: every packet sees one revision or the other.

mod debug_info;
mod program;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use self::debug_info::DebugInfo;
use self::program::Call;
use super::epoch::{EpochPage, EpochWord};
use super::hook::{self, AttachError, Attachment, Hook, Target, TcMethod};
use super::interface;
use super::loader::{Programs, with_causes};
use super::quiesce::Quiescer;
use super::reclaim::Reclaim;
use super::sys::{self, InfoRecords, MapCreate, ProgLoad};
use super::verifier;
use crate::config::{Verdict, XdpMode};

/// Probes on one interface and hook. The kernel allows 33 tail calls per packet; the rest is the probes'.
pub const MAX_CHAIN: usize = 16;
/// One pair more, so that the last probe can be replaced while it runs.
const PAIRS: usize = MAX_CHAIN + 1;
const BPF_MAP_TYPE_PROG_ARRAY: u32 = 3;

/// Identifies one deployment of a probe in all dispatchers it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub u64);

/// A place on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub interface: String,
    pub ifindex: u32,
    pub hook: Hook,
}

/// What a probe brings to a dispatcher.
#[derive(Clone, Copy, Debug)]
pub struct Addition<'a> {
    pub owner: Owner,
    pub programs: &'a Programs,
    pub epoch: &'a EpochWord,
    pub verdict: Verdict,
    pub xdp_mode: XdpMode,
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    call: Call,
}

#[derive(Debug)]
struct Dispatcher {
    pins: PathBuf,
    slots: OwnedFd,
    /// `None` while the first probe is being added.
    attachment: Option<Attachment>,
    entries: Vec<Entry>,
}

/// All dispatchers of this daemon.
#[derive(Debug)]
pub struct Dispatchers {
    epochs: Arc<EpochPage>,
    quiescer: Arc<Quiescer>,
    /// One directory of pins for each dispatcher.
    root: PathBuf,
    tc_method: TcMethod,
    by_place: Mutex<BTreeMap<(u32, Hook), Dispatcher>>,
}

impl Dispatchers {
    /// Dispatchers with their pins under `root`, which holds none yet.
    pub fn new(root: PathBuf, epochs: Arc<EpochPage>, quiescer: Arc<Quiescer>, tc_method: TcMethod) -> Self {
        Self { epochs, quiescer, root, tc_method, by_place: Mutex::default() }
    }

    /// Adds a probe at `place`, in the position of the deployment it replaces, if any. Returns how the
    /// dispatcher is attached. Nothing has changed after an error.
    pub fn add(
        &self,
        place: &Place,
        addition: &Addition<'_>,
        replaces: Option<Owner>,
    ) -> Result<&'static str, AttachError> {
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (place.ifindex, place.hook);
        let existing = by_place.remove(&key);
        let is_new = existing.is_none();
        let mut dispatcher = match existing {
            Some(dispatcher) => dispatcher,
            None => self.create(place)?,
        };
        let result = self.add_to(&mut dispatcher, place, addition, replaces);
        if result.is_err() && is_new {
            // Nothing was attached: the pins are all there is.
            if let Err(error) = remove_pins(&dispatcher.pins) {
                tracing::warn!(pins = %dispatcher.pins.display(), %error, "pins could not be removed");
            }
        } else {
            by_place.insert(key, dispatcher);
        }
        result
    }

    /// Takes a deployment out of the dispatcher at `place`; the last one takes the dispatcher with it.
    pub fn remove(&self, place: &Place, owner: Owner, reclaim: &mut Reclaim) -> Result<(), AttachError> {
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (place.ifindex, place.hook);
        let Some(dispatcher) = by_place.get_mut(&key) else { return Ok(()) };
        let failed = |source| failed(place, source);
        let Some(position) = dispatcher.entries.iter().position(|entry| entry.owner == owner) else {
            return Ok(());
        };
        if dispatcher.entries.len() > 1 {
            let calls = dispatcher.calls(|entry| (entry.owner != owner).then_some(entry.call));
            self.switch(dispatcher, place, &calls)?;
            let entry = dispatcher.entries.remove(position);
            self.quiescer.quiesce().map_err(failed)?;
            return dispatcher.clear(entry.call.pair).map_err(failed);
        }
        if let Some(dispatcher) = by_place.remove(&key) {
            reclaim.add_map(dispatcher.slots.as_fd());
            dispatcher.detach(place);
        }
        Ok(())
    }

    fn create(&self, place: &Place) -> Result<Dispatcher, AttachError> {
        let failed = |source| failed(place, source);
        let slots = sys::map_create(&MapCreate {
            name: "tp_slots",
            map_type: BPF_MAP_TYPE_PROG_ARRAY,
            key_size: 4,
            value_size: 4,
            max_entries: 2 * PAIRS as u32,
            ..MapCreate::default()
        })
        .map_err(failed)?;
        let pins = self.root.join(pin_directory(place));
        // Left by a daemon that died between detaching and cleaning up.
        let _ = remove_pins(&pins);
        std::fs::create_dir_all(&pins).map_err(failed)?;
        // Without a pin the kernel empties a prog-array when its last descriptor is closed.
        if let Err(error) = sys::obj_pin(slots.as_fd(), &pins.join("slots")) {
            let _ = remove_pins(&pins);
            return Err(failed(error));
        }
        Ok(Dispatcher { pins, slots, attachment: None, entries: Vec::new() })
    }

    fn add_to(
        &self,
        dispatcher: &mut Dispatcher,
        place: &Place,
        addition: &Addition<'_>,
        replaces: Option<Owner>,
    ) -> Result<&'static str, AttachError> {
        let failed = |source| failed(place, source);
        let old = dispatcher.entries.iter().position(|entry| Some(entry.owner) == replaces);
        if old.is_none() && dispatcher.entries.len() == MAX_CHAIN {
            return Err(AttachError::Occupied(format!(
                "{MAX_CHAIN} probes are attached at {} of {}; delete one first",
                place.hook.name(),
                place.interface
            )));
        }
        let attached_as = dispatcher.attachment.as_ref().map(Attachment::mode);
        if let (Some("generic"), XdpMode::Native) | (Some("native"), XdpMode::Generic) =
            (attached_as, addition.xdp_mode)
        {
            return Err(AttachError::Occupied(format!(
                "other probes have attached XDP to {} in mode {}; use that mode or auto",
                place.interface,
                attached_as.unwrap_or_default()
            )));
        }
        let pair = (0..PAIRS)
            .find(|pair| dispatcher.entries.iter().all(|entry| entry.call.pair != *pair))
            .ok_or_else(|| failed(io::Error::other("no slot is free")))?;
        let call = Call { pair, epoch_offset: addition.epoch.offset(), verdict: addition.verdict };
        dispatcher.fill(pair, addition.programs).map_err(failed)?;
        let mut calls = dispatcher.calls(|entry| Some(entry.call));
        match old {
            Some(position) => calls[position] = call,
            None => calls.push(call),
        }
        let result = match dispatcher.attachment {
            Some(_) => self.switch(dispatcher, place, &calls),
            None => self.attach(dispatcher, place, addition.xdp_mode, &calls),
        };
        if let Err(error) = result {
            if let Err(error) = dispatcher.clear(pair) {
                tracing::warn!(%error, "a slot could not be cleared");
            }
            return Err(error);
        }
        let entry = Entry { owner: addition.owner, call };
        match old {
            Some(position) => {
                let old = std::mem::replace(&mut dispatcher.entries[position], entry);
                // The new revision is in place: what is left of the old deployment harms nobody.
                let cleared = self.quiescer.quiesce().and_then(|_| dispatcher.clear(old.call.pair));
                if let Err(error) = cleared {
                    tracing::warn!(%error, "the replaced probe's slots could not be cleared");
                }
            }
            None => dispatcher.entries.push(entry),
        }
        Ok(dispatcher.attachment.as_ref().map_or("", Attachment::mode))
    }

    fn attach(
        &self,
        dispatcher: &mut Dispatcher,
        place: &Place,
        xdp_mode: XdpMode,
        calls: &[Call],
    ) -> Result<(), AttachError> {
        let program = self.load(dispatcher, place, calls)?;
        let target = Target {
            interface: &place.interface,
            ifindex: place.ifindex,
            hook: place.hook,
            xdp_mode,
            tc_method: self.tc_method,
        };
        let attachment = Attachment::attach(&target, program.as_fd(), &dispatcher.pins)?;
        if let Err(error) = attachment.pin(&dispatcher.pins) {
            let _ = attachment.detach();
            return Err(failed(place, error));
        }
        dispatcher.attachment = Some(attachment);
        Ok(())
    }

    fn switch(&self, dispatcher: &mut Dispatcher, place: &Place, calls: &[Call]) -> Result<(), AttachError> {
        let program = self.load(dispatcher, place, calls)?;
        let Some(attachment) = &mut dispatcher.attachment else { return Ok(()) };
        attachment.replace(program.as_fd(), &dispatcher.pins).map_err(|error| failed(place, error))
    }

    fn load(&self, dispatcher: &Dispatcher, place: &Place, calls: &[Call]) -> Result<OwnedFd, AttachError> {
        let kind = place.hook.kind();
        let program = program::build(place.hook, dispatcher.slots.as_fd(), self.epochs.map(), calls);
        let debug_info = DebugInfo::new(&program.functions);
        let btf = sys::btf_load(&debug_info.btf).map_err(|error| failed(place, error))?;
        verifier::load(&ProgLoad {
            name: "tp_dispatcher",
            prog_type: kind.prog_type(),
            expected_attach_type: kind.expected_attach_type(),
            flags: kind.load_flags(),
            license: c"GPL",
            instructions: &program.instructions,
            btf: Some(btf.as_fd()),
            func_info: debug_info.records(),
            line_info: InfoRecords::default(),
        })
        .map_err(|refusal| {
            tracing::error!(log = refusal.log, "the dispatcher was refused");
            AttachError::Unsupported(format!("this kernel does not take the dispatcher: {}", refusal.message))
        })
    }
}

impl Dispatcher {
    fn calls(&self, map: impl Fn(&Entry) -> Option<Call>) -> Vec<Call> {
        self.entries.iter().filter_map(map).collect()
    }

    fn fill(&self, pair: usize, programs: &Programs) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        for parity in 0..2 {
            let program = programs.of_parity(parity).as_raw_fd();
            sys::map_update(self.slots.as_fd(), &slot(pair, parity), &program.to_ne_bytes())?;
        }
        Ok(())
    }

    fn clear(&self, pair: usize) -> io::Result<()> {
        for parity in 0..2 {
            sys::map_delete(self.slots.as_fd(), &slot(pair, parity))?;
        }
        Ok(())
    }

    /// Detaches and removes the pins. What fails is logged: there is nobody to give it back to.
    fn detach(self, place: &Place) {
        let detached = self.attachment.map_or(Ok(()), Attachment::detach);
        for error in [detached, remove_pins(&self.pins)].into_iter().filter_map(Result::err) {
            tracing::warn!(
                interface = place.interface,
                hook = place.hook.name(),
                error = with_causes(&error),
                "detaching was not clean"
            );
        }
    }
}

fn slot(pair: usize, parity: usize) -> [u8; 4] {
    ((2 * pair + parity) as u32).to_ne_bytes()
}

fn failed(place: &Place, source: io::Error) -> AttachError {
    AttachError::Failed { hook: place.hook.name(), interface: place.interface.clone(), source }
}

fn pin_directory(place: &Place) -> String {
    format!("{}_{}", place.ifindex, place.hook.name())
}

fn remove_pins(pins: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(pins) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Detaches whatever the pins under `root` hold attached and removes them.
pub fn remove_leftovers(root: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let pins = entry?.path();
        let name = pins.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let place = name
            .split_once('_')
            .and_then(|(ifindex, hook)| Some((ifindex.parse::<u32>().ok()?, Hook::from_name(hook)?)));
        if let Some((ifindex, hook)) = place {
            let interface = interface::name(ifindex).unwrap_or_default();
            if let Err(error) = hook::detach_leftover(&interface, hook, &pins) {
                tracing::warn!(pins = %pins.display(), %error, "an earlier attachment is left as it is");
            }
        }
        remove_pins(&pins)?;
    }
    Ok(())
}
