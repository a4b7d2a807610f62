//! XDP as one of the programs that a dispatcher of libxdp calls.
//!
//! The kernel allows one XDP program at an interface. If this is libxdp's dispatcher, `xdp-loader`
//! loads a small program as an extension of it, by libxdp's own protocol. That program calls slot 0
//! of a pinned prog-array. There the daemon exchanges its own dispatcher between two packets.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use twinprobe_ebpf_common::hook::{XdpKind, XdpMode};

use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::hook::loader::XdpLoader;
use crate::attach::hook::xdp_request::{GENERIC, NATIVE, XdpRequest};
use crate::load::pins as files;
use crate::net::rtnl::socket::NetlinkSocket;
use crate::net::rtnl::xdp::Device;
use crate::sys::call::found;
use crate::sys::map::{self, BPF_MAP_TYPE_PROG_ARRAY, MapCreate};
use crate::sys::{object, prog};

/// The directory where libxdp pins the programs that its dispatchers call.
const PINS: &str = "/sys/fs/bpf/xdp";
/// The name of the prog-array in the object that `xdp-loader` loads, and of its pin.
pub const ARRAY: &str = "tp_libxdp";
/// The name of the program in that object, which `xdp-loader status` shows.
pub const ENTRY: &str = "twinprobe";
/// The modes of libxdp's dispatchers. Among the pins of a dispatcher, each mode has a directory for
/// the pin of the prog-array.
const MODES: [&str; 2] = [NATIVE, GENERIC];
const SLOT: [u8; 4] = 0_u32.to_ne_bytes();

/// The daemon's place among the programs of libxdp's dispatcher at one interface.
#[derive(Debug)]
pub struct Membership {
    /// A socket in the interface's namespace, whichever thread uses it.
    socket: Mutex<NetlinkSocket>,
    ifindex: u32,
    array: OwnedFd,
    /// The id of the prog-array.
    id: u32,
    pub mode: &'static str,
}

impl Membership {
    /// Makes libxdp's dispatcher at `place` call `program`; `None` if there is no such dispatcher,
    /// or if `xdp-loader` is not configured. Call this in the interface's namespace.
    pub fn join(
        place: &HookPoint,
        request: XdpRequest,
        program: BorrowedFd<'_>,
        pins: &Path,
    ) -> Result<Option<Self>, AttachError> {
        let failed = |error| place.failed(error);
        let Some(loader) = XdpLoader::known() else {
            return Ok(None);
        };
        let socket = NetlinkSocket::here().map_err(failed)?;
        let Some((device, mode)) = owned(socket, place.ifindex).map_err(failed)? else {
            return Ok(None);
        };
        if request.kind != XdpKind::Joined {
            return Err(AttachError::Occupied(format!(
                "libxdp has attached its dispatcher to {} since the probe was loaded; PUT the probe again, and it joins",
                place.interface
            )));
        }
        if matches!(
            (mode, request.mode),
            (NATIVE, XdpMode::Generic) | (GENERIC, XdpMode::Native)
        ) {
            return Err(AttachError::Occupied(format!(
                "libxdp has attached its dispatcher to {} in mode {mode}; use that mode or auto",
                place.interface
            )));
        }
        let joined = Self::create(place.ifindex, mode, program, pins).map_err(failed)?;
        let directory = directory(pins, mode);
        let loaded = loader.load(&device.name, mode, &directory);
        let joined = loaded.and_then(|()| match joined.member()? {
            Some(_) => Ok(joined),
            None => Err(io::Error::other(
                "libxdp's dispatcher does not call what xdp-loader has loaded",
            )),
        });
        joined.map(Some).map_err(|error| {
            let _ = files::remove_directory(&directory);
            AttachError::Occupied(format!(
                "joining libxdp's dispatcher at {} failed: {error}; update xdp-tools (kernels since 6.13, and many older ones \
                 by now, need 1.6 or later at each program that uses the interface), or use hook tc",
                place.interface
            ))
        })
    }

    fn create(
        ifindex: u32,
        mode: &'static str,
        program: BorrowedFd<'_>,
        pins: &Path,
    ) -> io::Result<Self> {
        let directory = directory(pins, mode);
        files::remove_directory(&directory)?;
        std::fs::create_dir(&directory)?;
        let array = MapCreate {
            map_type: BPF_MAP_TYPE_PROG_ARRAY,
            ..MapCreate::array(ARRAY, 4, 1)
        };
        let array = map::map_create(&array)?;
        map::map_update(array.as_fd(), &SLOT, &program.as_raw_fd().to_ne_bytes())?;
        object::obj_pin(array.as_fd(), &directory.join(ARRAY))?;
        Self::of(array, ifindex, mode)
    }

    fn of(array: OwnedFd, ifindex: u32, mode: &'static str) -> io::Result<Self> {
        let id = map::map_id(array.as_fd())?;
        Ok(Self {
            socket: Mutex::new(NetlinkSocket::here()?),
            ifindex,
            array,
            id,
            mode,
        })
    }

    /// Adopts the place of an earlier daemon, whose pins are in `pins`; `None` if there is no such
    /// place. Call this in the interface's namespace.
    pub fn adopt(ifindex: u32, pins: &Path) -> io::Result<Option<Self>> {
        for mode in MODES {
            if let Some(array) = found(object::obj_get(&directory(pins, mode).join(ARRAY)))? {
                return Self::of(array, ifindex, mode).map(Some);
            }
        }
        Ok(None)
    }

    /// Removes the pins of a place that was lost.
    pub fn unpin(pins: &Path) -> io::Result<()> {
        MODES
            .into_iter()
            .try_for_each(|mode| files::remove_directory(&directory(pins, mode)))
    }

    /// Replaces the present program with `program`, between two packets. Fails with `NotFound` if
    /// libxdp's dispatcher no longer calls the daemon's program.
    pub fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        if self.member()?.is_none() {
            let message = "libxdp's dispatcher does not call the daemon any more";
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        map::map_update(
            self.array.as_fd(),
            &SLOT,
            &program.as_raw_fd().to_ne_bytes(),
        )
    }

    /// Returns the id of the program that packets of the interface meet; `None` if this is not the
    /// daemon's program.
    pub fn program_at(&self, ifindex: u32) -> io::Result<Option<u32>> {
        let mut id = [0; 4];
        let is_called = self.ifindex == ifindex
            && self.member()?.is_some()
            && map::map_lookup(self.array.as_fd(), &SLOT, &mut id)?;
        Ok(is_called.then_some(u32::from_ne_bytes(id)))
    }

    /// Leaves libxdp's dispatcher. Other programs stay. Call this in the interface's namespace.
    pub fn detach(&self) -> io::Result<()> {
        let Some((device, id)) = self.member()? else {
            return Ok(());
        };
        let loader = XdpLoader::known().ok_or_else(|| {
            io::Error::other(
                "libxdp's dispatcher calls the daemon; start it with --xdp-loader to leave",
            )
        })?;
        loader.unload(&device.name, id)
    }

    /// Returns the interface, and the id of the extension through which libxdp's dispatcher calls
    /// the daemon's program.
    fn member(&self) -> io::Result<Option<(Device, u32)>> {
        let Some(device) = self.socket.lock().device(self.ifindex)? else {
            return Ok(None);
        };
        let programs = device.programs.iter();
        let directories = programs.map(|(_, dispatcher)| pins_of(self.ifindex, *dispatcher));
        let called = directories.flat_map(|directory| called(&directory).unwrap_or_default());
        let ours = called
            .into_iter()
            .find(|program| program.maps.contains(&self.id));
        Ok(ours.map(|program| (device, program.id)))
    }
}

/// A program that a dispatcher of libxdp calls.
pub struct CalledProgram {
    pub number: u8,
    pub pin: PathBuf,
    id: u32,
    maps: Vec<u32>,
}

/// Returns the programs that are pinned in the directory of a dispatcher, in the order of its
/// calls. Leaves out other names, and pins that can't be opened.
pub fn called(directory: &Path) -> io::Result<Vec<CalledProgram>> {
    let mut programs = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let pin = entry?.path();
        let name = pin.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| {
            name.strip_prefix("prog")?
                .strip_suffix("-prog")?
                .parse()
                .ok()
        });
        let Some(number) = number else { continue };
        let Ok((id, maps)) =
            object::obj_get(&pin).and_then(|program| prog::prog_ids(program.as_fd()))
        else {
            continue;
        };
        programs.push(CalledProgram {
            number,
            pin,
            id,
            maps,
        });
    }
    programs.sort_by_key(|program| program.number);
    Ok(programs)
}

/// Returns the directory in which libxdp pins the programs that a dispatcher at an interface calls.
pub fn pins_of(ifindex: u32, dispatcher: u32) -> PathBuf {
    Path::new(PINS).join(format!("dispatch-{ifindex}-{dispatcher}"))
}

/// Tells whether an interface of the caller's namespace has a dispatcher of libxdp that the daemon
/// can join.
pub fn can_join(ifindex: u32) -> io::Result<bool> {
    Ok(XdpLoader::known().is_some() && owned(NetlinkSocket::here()?, ifindex)?.is_some())
}

/// Returns the interface, and the mode of libxdp's dispatcher there; `None` if the interface has no
/// such dispatcher.
fn owned(mut socket: NetlinkSocket, ifindex: u32) -> io::Result<Option<(Device, &'static str)>> {
    let Some(device) = socket.device(ifindex)? else {
        return Ok(None);
    };
    let mut programs = device.programs.iter();
    let owner = programs
        .find(|(_, id)| pins_of(ifindex, *id).is_dir())
        .map(|(mode, _)| *mode);
    Ok(owner.map(|mode| (device, mode)))
}

fn directory(pins: &Path, mode: &str) -> PathBuf {
    pins.join(format!("libxdp_{mode}"))
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::hook::ProgramKind;

    use super::*;
    use crate::sys::asm;
    use crate::sys::bpffs::testing::PinsDirectory;
    use crate::sys::prog::ProgLoad;

    #[test]
    fn strange_names_are_no_programs_of_libxdp() {
        let directory = PinsDirectory::new("libxdp");
        let pins = &directory.0;
        let array = map::map_create(&MapCreate::array("tp_test", 8, 1)).unwrap();
        for name in ["prog-1-prog", "array"] {
            object::obj_pin(array.as_fd(), &pins.join(name)).unwrap();
        }
        std::fs::create_dir(pins.join("prog4-prog")).unwrap();
        let pass = asm::pass_program(2);
        let program =
            prog::prog_load(&ProgLoad::new("tp_test", ProgramKind::Xdp, &pass), None).unwrap();
        for name in [
            "prog10-prog",
            "prog2-prog",
            "prog2-link",
            "prog999-prog",
            "progx-prog",
            "prog",
        ] {
            object::obj_pin(program.as_fd(), &pins.join(name)).unwrap();
        }
        let found: Vec<u8> = called(pins)
            .unwrap()
            .iter()
            .map(|program| program.number)
            .collect();
        assert_eq!(found, [2, 10]);
        assert!(called(&pins.join("missing")).is_err());
    }
}
