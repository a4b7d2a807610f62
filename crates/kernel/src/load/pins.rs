//! The pins of one deployment of a probe, and the record by which a later daemon recognises the
//! pinned objects.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::hook::{Position, Verdict};

use crate::load::direction::{LoadedDirection, program_ids};
use crate::plan::probe_plan::pin_name;
use crate::sys::call::{KernelError, found};
use crate::sys::map::{self, BPF_MAP_TYPE_ARRAY, MapCreate};
use crate::sys::object;
use crate::sys::prog::{self, ProgIdentity};

/// The record of a deployment's kernel objects, which is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The id of the boot (`/proc/sys/kernel/random/boot_id`): ids of kernel objects have no
    /// meaning after another boot.
    pub boot_id: String,
    /// The deployment's number, which names its directory of pins.
    pub serial: u64,
    /// The serial of the probe's first deployment, which orders probes of the same priority.
    pub order: u64,
    /// The index of the probe's words in the epoch map.
    pub epoch: usize,
    pub directions: Vec<DirectionRecord>,
}

impl Deployment {
    /// Returns the names of the maps that both directions use.
    pub fn common_maps(&self) -> Vec<String> {
        let Some((ingress, others)) = self.directions.split_first() else {
            return Vec::new();
        };
        // The directions of the first interface come first where each interface has its own.
        let of_interface = |other: &&DirectionRecord| other.interface == ingress.interface;
        let Some(egress) = others.iter().find(of_interface) else {
            return Vec::new();
        };
        let is_common = |map: &&MapRecord| egress.maps.contains(map);
        ingress
            .maps
            .iter()
            .filter(is_common)
            .map(|map| map.name.clone())
            .collect()
    }
}

/// The kernel objects of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionRecord {
    pub direction: String,
    /// The index of the interface that the direction serves; `None` if it serves all interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// True if the programs take packets of several buffers; `None` in a record of an earlier
    /// version, which loaded all XDP programs for such packets where the kernel has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frags: Option<bool>,
    /// True if the programs were loaded to be called through libxdp's dispatcher.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined: bool,
    pub programs: Vec<ProgIdentity>,
    pub maps: Vec<MapRecord>,
}

/// The kernel objects of one map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRecord {
    pub name: String,
    /// The ids of the map: one id for each twin if the map is private, or else one id.
    pub ids: Vec<u32>,
}

impl DirectionRecord {
    pub fn new(loaded: &LoadedDirection) -> Result<Self, KernelError> {
        let direction = loaded.plan.direction();
        let failed = |source| {
            KernelError::new(
                "identification",
                format!("the {direction} programs"),
                source,
            )
        };
        let programs = loaded
            .programs
            .each()
            .iter()
            .map(|program| prog::prog_identity(program.as_fd()));
        let maps = loaded.own.each().map(|(map, fds)| {
            let ids: io::Result<Vec<u32>> = fds
                .each()
                .iter()
                .map(|fd| map::map_id(fd.as_fd()))
                .collect();
            Ok(MapRecord {
                name: map.name.clone(),
                ids: ids?,
            })
        });
        Ok(Self {
            direction: direction.to_owned(),
            interface: loaded.plan.own_interface.as_ref().map(|own| own.index),
            frags: Some(loaded.plan.frags),
            joined: loaded.plan.joined,
            programs: programs.collect::<io::Result<_>>().map_err(failed)?,
            maps: maps.collect::<io::Result<_>>().map_err(failed)?,
        })
    }
}

impl DirectionRecord {
    /// Returns the name of the direction in the names of pins.
    pub fn pin_name(&self) -> String {
        pin_name(&self.direction, self.interface)
    }
}

const NOTE: &str = "note";
/// The version of notes about sampled probes. Daemons that do not know this version would call such
/// programs for every packet.
const NOTE_VERSION: u32 = 2;
/// The version of notes that earlier daemons know as well.
const NOTE_VERSION_UNSAMPLED: u32 = 1;

/// The facts about a deployment that a later daemon needs to let the deployment continue unchanged,
/// although its stored configuration can't be read. The note is pinned with the deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The version of the note's format.
    pub version: u32,
    pub probe: String,
    /// The path of the probe's network namespace, unless that is the daemon's own.
    pub netns: Option<PathBuf>,
    pub order: u64,
    pub epoch: usize,
    pub directions: Vec<NotedDirection>,
}

/// The facts about one direction in a [`Note`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedDirection {
    pub hook: String,
    pub first: bool,
    pub priority: i32,
    pub enforce: bool,
    /// True if each verdict that the programs can return takes effect as it is.
    #[serde(default)]
    pub stands: bool,
    /// True if the programs take packets of several buffers; `None` as in a [`DirectionRecord`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frags: Option<bool>,
    /// True if the programs were loaded to be called through libxdp's dispatcher.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined: bool,
    /// The sampling: the program sees one packet out of this many; `None` if it sees all packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<NonZeroU32>,
    /// The ids of the programs for even and odd epochs.
    pub programs: [u32; 2],
}

impl Note {
    pub fn new(
        identity: Identity<'_>,
        record: &Deployment,
        loaded: &[LoadedDirection],
    ) -> io::Result<Self> {
        let directions = loaded.iter().map(|loaded| {
            let attach = loaded.plan.attach;
            Ok(NotedDirection {
                hook: attach.hook.name().to_owned(),
                first: attach.position == Position::First,
                priority: attach.priority.into(),
                enforce: attach.verdict == Verdict::Enforce,
                stands: loaded.stands(),
                frags: Some(loaded.plan.frags),
                joined: loaded.plan.joined,
                sample: attach.sample,
                programs: program_ids(&loaded.programs)?,
            })
        });
        let directions = directions.collect::<io::Result<Vec<NotedDirection>>>()?;
        let is_sampled = directions
            .iter()
            .any(|direction| direction.sample.is_some());
        Ok(Self {
            version: if is_sampled {
                NOTE_VERSION
            } else {
                NOTE_VERSION_UNSAMPLED
            },
            probe: identity.probe.to_owned(),
            netns: identity.netns.map(Path::to_owned),
            order: record.order,
            epoch: record.epoch,
            directions,
        })
    }
}

/// The probe of a deployment, and the path of the probe's network namespace.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    pub probe: &'a str,
    pub netns: Option<&'a Path>,
}

/// The directory of pins of one deployment. Maps are numbered, because names in bpffs must not have
/// dots.
#[derive(Debug)]
pub struct DeploymentPins(PathBuf);

impl DeploymentPins {
    pub fn new(root: &Path, serial: u64) -> Self {
        Self(root.join(serial.to_string()))
    }

    /// Pins every program and map of a direction. After an error some pins may be left; the caller
    /// [removes](Self::remove) them.
    pub fn pin(&self, record: &DirectionRecord, loaded: &LoadedDirection) -> io::Result<()> {
        std::fs::create_dir_all(&self.0)?;
        for (twin, program) in loaded.programs.each().iter().enumerate() {
            object::obj_pin(program.as_fd(), &self.program(&record.pin_name(), twin))?;
        }
        for (index, (_, fds)) in loaded.own.each().enumerate() {
            for (twin, fd) in fds.each().iter().enumerate() {
                object::obj_pin(fd.as_fd(), &self.map(&record.pin_name(), index, twin))?;
            }
        }
        Ok(())
    }

    /// Opens the pinned programs. Fails with the reason unless they are the programs of the record.
    pub fn programs(&self, record: &DirectionRecord) -> Result<Vec<OwnedFd>, String> {
        let open = |(twin, identity): (usize, &ProgIdentity)| {
            let path = self.program(&record.pin_name(), twin);
            check(&path, identity, prog::prog_identity)
        };
        record.programs.iter().enumerate().map(open).collect()
    }

    /// Opens the pinned program with this id.
    pub fn program_with_id(&self, id: u32) -> io::Result<OwnedFd> {
        for entry in std::fs::read_dir(&self.0)? {
            let Ok(program) = object::obj_get(&entry?.path()) else {
                continue;
            };
            if prog::prog_identity(program.as_fd()).is_ok_and(|identity| identity.id == id) {
                return Ok(program);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Opens a pinned map of a twin. Fails with the reason unless it is the map of the record.
    pub fn open_map(
        &self,
        record: &DirectionRecord,
        name: &str,
        twin: usize,
    ) -> Result<OwnedFd, String> {
        let found = record
            .maps
            .iter()
            .enumerate()
            .find(|(_, map)| map.name == name);
        let id = found.and_then(|(index, map)| Some((index, *map.ids.get(twin)?)));
        let (index, id) = id.ok_or_else(|| format!("map {name} is not in the record"))?;
        check(&self.map(&record.pin_name(), index, twin), &id, map::map_id)
    }

    /// Pins `note` with the deployment, unless the same note is pinned already.
    pub fn write_note(&self, note: &Note) -> io::Result<()> {
        if self.note().is_ok_and(|(known, _)| known == *note) {
            return Ok(());
        }
        let path = self.0.join(NOTE);
        let mut text = serde_json::to_vec(note)?;
        // The kernel rounds the size of a value up to 8 bytes; JSON allows spaces at its end.
        text.resize(text.len().next_multiple_of(8), b' ');
        let map = map::map_create(&MapCreate::array("tp_note", text.len(), 1))?;
        map::map_update(map.as_fd(), &[0; 4], &text)?;
        found(std::fs::remove_file(&path))?;
        object::obj_pin(map.as_fd(), &path)
    }

    pub fn note(&self) -> io::Result<(Note, OwnedFd)> {
        let map = object::obj_get(&self.0.join(NOTE))?;
        let info = map::map_info(map.as_fd())?;
        if (info.type_, info.key_size, info.max_entries) != (BPF_MAP_TYPE_ARRAY, 4, 1) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; (info.value_size as usize).next_multiple_of(8)];
        map::map_lookup(map.as_fd(), &[0; 4], &mut text)?;
        text.truncate(info.value_size as usize);
        let note: Note = serde_json::from_slice(&text)?;
        match note.version {
            NOTE_VERSION_UNSAMPLED..=NOTE_VERSION => Ok((note, map)),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub fn remove(&self) -> io::Result<()> {
        remove_directory(&self.0)
    }

    pub fn journal(&self, direction: &str, metric: usize) -> PathBuf {
        self.0.join(format!("{direction}_journal_{metric}"))
    }

    fn program(&self, direction: &str, twin: usize) -> PathBuf {
        self.0.join(format!("{direction}_program_{twin}"))
    }

    fn map(&self, direction: &str, index: usize, twin: usize) -> PathBuf {
        self.0.join(format!("{direction}_map_{index}_{twin}"))
    }
}

/// Opens the object at `path`. Fails with the reason unless the object is the `expected` one.
fn check<T: PartialEq + std::fmt::Debug>(
    path: &Path,
    expected: &T,
    identify: impl Fn(BorrowedFd<'_>) -> io::Result<T>,
) -> Result<OwnedFd, String> {
    let object = object::obj_get(path)
        .map_err(|error| format!("{} can't be opened: {error}", path.display()))?;
    match identify(object.as_fd()) {
        Ok(found) if found == *expected => Ok(object),
        Ok(found) => Err(format!("{} is {found:?}, not {expected:?}", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Removes a directory with the pins in it. A directory that does not exist is not an error.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    found(std::fs::remove_dir_all(path)).map(drop)
}

pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}
