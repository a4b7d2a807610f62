//! The prog-array through which dispatchers call the programs of one direction of a deployment.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::attach::rank::DeploymentId;
use crate::load::maps::Twins;
use crate::sys::call::found;
use crate::sys::map::{self, BPF_MAP_TYPE_PROG_ARRAY, MapCreate};
use crate::sys::{object, prog};

/// A prog-array with the twin of even epochs in slot 0 and the twin of odd epochs in slot 1. All
/// dispatchers of the deployment use the same array, so that dispatchers with the same calls have
/// the same program.
///
/// The kernel empties a prog-array when its last descriptor is closed and its last pin removed:
/// each dispatcher that calls the deployment has a pin. A pin also tells a later daemon which
/// deployments a dispatcher may call.
#[derive(Debug)]
pub struct Slots {
    map: OwnedFd,
    pub id: u32,
    /// The ids of the programs.
    pub programs: [u32; 2],
}

impl Slots {
    pub fn fill(programs: &Twins<OwnedFd>) -> io::Result<Self> {
        Self::of([0, 1].map(|parity| programs.of_twin(parity).as_fd()))
    }

    fn of(programs: [BorrowedFd<'_>; 2]) -> io::Result<Self> {
        let array = MapCreate::array("tp_slots", 4, 2);
        let map = map::map_create(&MapCreate {
            map_type: BPF_MAP_TYPE_PROG_ARRAY,
            ..array
        })?;
        for (parity, program) in (0_u32..).zip(programs) {
            map::map_update(
                map.as_fd(),
                &parity.to_ne_bytes(),
                &program.as_raw_fd().to_ne_bytes(),
            )?;
        }
        let id = |program| Ok::<_, io::Error>(prog::prog_identity(program)?.id);
        let programs = [id(programs[0])?, id(programs[1])?];
        Ok(Self {
            id: map::map_id(map.as_fd())?,
            map,
            programs,
        })
    }

    /// Opens the slots of `owner` among the `pins` of a dispatcher; `None` if they do not exist, or
    /// if they do not contain the `programs` with these ids.
    pub fn left(pins: &Path, owner: DeploymentId, programs: [u32; 2]) -> io::Result<Option<Self>> {
        let Some(map) = found(object::obj_get(&pin(pins, owner)))? else {
            return Ok(None);
        };
        let info = map::map_info(map.as_fd())?;
        let is_whole = (info.type_, info.max_entries) == (BPF_MAP_TYPE_PROG_ARRAY, 2)
            && holds(map.as_fd(), 0, programs)?;
        Ok(is_whole.then_some(Self {
            id: info.id,
            map,
            programs,
        }))
    }

    /// Does the same as [`Self::left`] for a dispatcher of an earlier version, which has the slots
    /// of all its probes in one prog-array. `open` opens a program.
    pub fn left_by_earlier_version(
        pins: &Path,
        programs: [u32; 2],
        open: impl Fn(u32) -> io::Result<OwnedFd>,
    ) -> io::Result<Option<Self>> {
        let Some(map) = found(object::obj_get(&pins.join(COMMON)))? else {
            return Ok(None);
        };
        let info = map::map_info(map.as_fd())?;
        if info.type_ != BPF_MAP_TYPE_PROG_ARRAY {
            return Ok(None);
        }
        for pair in 0..info.max_entries / 2 {
            if holds(map.as_fd(), 2 * pair, programs)? {
                let [even, odd] = [open(programs[0])?, open(programs[1])?];
                return Self::of([even.as_fd(), odd.as_fd()]).map(Some);
            }
        }
        Ok(None)
    }

    /// Pins the slots among the `pins` of a dispatcher, unless they are pinned already.
    pub fn pin(&self, pins: &Path, owner: DeploymentId) -> io::Result<()> {
        let path = pin(pins, owner);
        if let Ok(map) = object::obj_get(&path) {
            if map::map_id(map.as_fd()).is_ok_and(|id| id == self.id) {
                return Ok(());
            }
            std::fs::remove_file(&path)?;
        }
        object::obj_pin(self.map.as_fd(), &path)
    }

    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// The name of the pin by which an earlier version kept the slots of all probes of a dispatcher.
const COMMON: &str = "slots";

fn pin(pins: &Path, owner: DeploymentId) -> PathBuf {
    pins.join(format!("slots_{}", owner.0))
}

/// Removes the pin of the slots of `owner` from the `pins` of a dispatcher.
pub fn unpin(pins: &Path, owner: DeploymentId) -> io::Result<()> {
    found(std::fs::remove_file(pin(pins, owner))).map(drop)
}

/// Removes the pins of all slots except those of `owners` from the `pins` of a dispatcher.
pub fn unpin_others(pins: &Path, owners: &[DeploymentId]) -> io::Result<()> {
    let kept: Vec<PathBuf> = owners.iter().map(|owner| pin(pins, *owner)).collect();
    for entry in std::fs::read_dir(pins)? {
        let entry = entry?;
        let is_slots = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(COMMON));
        if is_slots && !kept.contains(&entry.path()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Tells whether this slot and the next slot contain the `programs` with these ids.
fn holds(map: BorrowedFd<'_>, slot: u32, programs: [u32; 2]) -> io::Result<bool> {
    for (slot, program) in (slot..).zip(programs) {
        let mut id = [0; 4];
        if !map::map_lookup(map, &slot.to_ne_bytes(), &mut id)? || u32::from_ne_bytes(id) != program
        {
            return Ok(false);
        }
    }
    Ok(true)
}
