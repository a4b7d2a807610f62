//! XDP programs and their owners, described for messages.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use aya::programs::{ProgramInfo, loaded_programs};

use crate::attach::hook::libxdp::{self, CalledProgram};
use crate::attach::hook::loader::XdpLoader;
use crate::attach::hook::manager::{self, ProgramManager};
use crate::net::rtnl::socket::NetlinkSocket;
use crate::net::rtnl::xdp::Device;
use crate::sys::object::{self, ObjectKind};
use crate::sys::{map, prog};

/// The name of libxdp's dispatcher.
const LIBXDP_DISPATCHER: &str = "xdp_dispatcher";
/// The first byte of the dispatcher's configuration. The third byte is the number of programs.
const LIBXDP_MAGIC: u8 = 236;
/// The name of this daemon's dispatchers.
pub const OWN_DISPATCHER: &str = "tp_dispatcher";

/// An XDP program at an interface, with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpNeighbour {
    pub interface: String,
    /// The owner and the program in words.
    pub described: String,
    /// True if the program belongs to a twinprobe daemon: its dispatcher, or its program among
    /// libxdp's programs.
    pub is_own: bool,
}

/// Returns the XDP programs at the interfaces of the caller's namespace, by the names of the
/// interfaces.
pub fn neighbours() -> io::Result<Vec<XdpNeighbour>> {
    let mut devices = NetlinkSocket::here()?.devices()?;
    devices.sort_by(|one, other| one.name.cmp(&other.name));
    let of = |device: Device| {
        let Device {
            index,
            name: interface,
            programs,
            ..
        } = device;
        programs.into_iter().map(move |(mode, id)| {
            let program = Foreign::new((&interface, index), id, mode);
            let is_own = program.has_twinprobe();
            XdpNeighbour {
                interface: interface.clone(),
                described: program.describe(is_own),
                is_own,
            }
        })
    };
    Ok(devices.into_iter().flat_map(of).collect())
}

/// An XDP program of another owner. The kernel allows no other program beside it.
#[derive(Debug)]
struct Foreign {
    name: String,
    id: u32,
    mode: &'static str,
    owner: ForeignOwner,
    /// The pin that keeps the program; `None` for a dispatcher of libxdp or twinprobe.
    pin: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
enum ForeignOwner {
    Libxdp {
        programs: Vec<String>,
        count: Option<u8>,
        pins: String,
    },
    Twinprobe,
    Managed(ProgramManager),
    Unknown,
}

impl ForeignOwner {
    /// Tells whether only a pin can say more about the owner. bpfman uses libxdp's dispatcher, but
    /// pins it at another path.
    const fn is_told_by_pins(&self) -> bool {
        match self {
            Self::Libxdp { programs, .. } => programs.is_empty(),
            Self::Twinprobe => false,
            Self::Managed(_) | Self::Unknown => true,
        }
    }
}

impl Foreign {
    fn new((interface, ifindex): (&str, u32), id: u32, mode: &'static str) -> Self {
        let info = loaded_programs()
            .flatten()
            .find(|program| program.id() == id);
        let name = info
            .as_ref()
            .and_then(ProgramInfo::name_as_str)
            .unwrap_or("without a name")
            .to_owned();
        let owner = match name.as_str() {
            LIBXDP_DISPATCHER => {
                let directory = libxdp::pins_of(ifindex, id);
                let programs = libxdp_programs(&directory).unwrap_or_default();
                let (count, pins) = (
                    info.as_ref().and_then(libxdp_count),
                    directory.display().to_string(),
                );
                ForeignOwner::Libxdp {
                    programs,
                    count,
                    pins,
                }
            }
            OWN_DISPATCHER => ForeignOwner::Twinprobe,
            _ => ForeignOwner::Unknown,
        };
        let pin = if owner.is_told_by_pins() {
            manager::pin_of(id)
        } else {
            None
        };
        let managed = pin
            .as_deref()
            .and_then(|pin| ProgramManager::of(pin, interface));
        Self {
            name,
            id,
            mode,
            owner: managed.map_or(owner, ForeignOwner::Managed),
            pin,
        }
    }

    fn has_twinprobe(&self) -> bool {
        match &self.owner {
            ForeignOwner::Twinprobe => true,
            ForeignOwner::Libxdp { programs, .. } => {
                programs.iter().any(|program| program == libxdp::ENTRY)
            }
            ForeignOwner::Managed(_) | ForeignOwner::Unknown => false,
        }
    }

    /// Describes the program in words for the end of a sentence. `is_own` is true if a dispatcher
    /// of twinprobe belongs to this daemon.
    fn describe(&self, is_own: bool) -> String {
        let Self {
            name,
            id,
            mode,
            owner,
            ..
        } = self;
        if is_own && *owner == ForeignOwner::Twinprobe {
            return format!(
                "a dispatcher of twinprobe, {name} (id {id}, {mode}; xdp-loader gets EBUSY)"
            );
        }
        self.to_string().trim_end_matches(',').to_owned()
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            id,
            mode,
            owner,
            pin,
        } = self;
        let pinned = pin
            .as_ref()
            .map(|pin| format!("; pinned as {}", pin.display()))
            .unwrap_or_default();
        let described = format!("{name} (id {id}, {mode}{pinned})");
        match owner {
            ForeignOwner::Unknown => write!(f, "the XDP program {described}"),
            ForeignOwner::Managed(ProgramManager::Bpfman) => {
                write!(f, "the dispatcher of bpfman, {described},")
            }
            ForeignOwner::Managed(ProgramManager::L3afd) => {
                write!(f, "the XDP program of l3afd, {described},")
            }
            ForeignOwner::Twinprobe => {
                write!(f, "the dispatcher of another twinprobe, {described},")
            }
            ForeignOwner::Libxdp {
                programs,
                count,
                pins,
            } => {
                write!(f, "a dispatcher of libxdp, {described},")?;
                match (programs.as_slice(), count) {
                    ([], Some(1)) => write!(f, " with 1 program,"),
                    ([], Some(count)) => write!(f, " with {count} programs,"),
                    ([], None) => Ok(()),
                    (programs, _) => write!(f, " with {} (pinned in {pins}),", programs.join(", ")),
                }
            }
        }
    }
}

/// Explains why no XDP program can be attached to `interface`, and what to do. Call this in the
/// interface's namespace.
pub fn occupied(interface: &str, ifindex: u32) -> String {
    let found = attached(ifindex).unwrap_or_else(|error| {
        tracing::warn!(interface, %error, "the attached XDP program could not be read");
        None
    });
    let (on, programs) = found.unwrap_or_else(|| (interface.to_owned(), Vec::new()));
    let joining = match XdpLoader::known() {
        None => Joining::NotAsked,
        Some(_) if !prog::takes_extensions() => Joining::Refused,
        Some(_) => Joining::Asked,
    };
    explain(interface, &on, &programs, joining)
}

/// The ability of the daemon to join dispatchers of libxdp.
#[derive(Clone, Copy, Debug)]
enum Joining {
    /// The daemon knows no `xdp-loader`.
    NotAsked,
    /// This kernel refuses the extensions by which libxdp calls programs.
    Refused,
    Asked,
}

fn explain(interface: &str, on: &str, programs: &[Foreign], joining: Joining) -> String {
    let named: Vec<String> = programs.iter().map(ToString::to_string).collect();
    let named = if named.is_empty() {
        "another XDP program".to_owned()
    } else {
        named.join(" and ")
    };
    let is = if programs.len() > 1 { "are" } else { "is" };
    let place = if on == interface {
        on.to_owned()
    } else {
        format!("{on}, which is on top of {interface}")
    };
    let first = programs.first();
    let advice = match first.map(|program| &program.owner) {
        Some(ForeignOwner::Libxdp { .. }) => {
            let join = match joining {
                Joining::NotAsked => "serve --xdp-loader /usr/sbin/xdp-loader joins it; or",
                Joining::Refused => {
                    "this kernel refuses the extensions by which libxdp calls others (EPERM):"
                }
                Joining::Asked => {
                    "libxdp pins no programs of it in /sys/fs/bpf/xdp, so twinprobe can't join it:"
                }
            };
            format!("{join} use hook tc, or unload it (xdp-loader unload {on} --all)")
        }
        Some(ForeignOwner::Managed(ProgramManager::Bpfman)) => format!(
            "use hook tc, or detach the programs of {on} there (bpfman list links, bpfman detach ID); bpfman pins them \
             where libxdp does not look, so twinprobe can't join"
        ),
        Some(ForeignOwner::Managed(ProgramManager::L3afd)) => {
            format!(
                "use hook tc, or remove the programs of {on} there (POST /l3af/configs/v1/delete)"
            )
        }
        Some(ForeignOwner::Twinprobe) => "deploy the probe there, or use hook tc".to_owned(),
        Some(ForeignOwner::Unknown) | None => {
            let why = match joining {
                Joining::Refused => {
                    "; this kernel refuses extensions (EPERM), so xdp-loader shares no hook here"
                }
                Joining::NotAsked | Joining::Asked => "",
            };
            let link = match first.and_then(|program| program.pin.as_ref()) {
                Some(_) => "remove its pin if it is a link",
                None => "end what holds its link",
            };
            format!(
                "detach it first (ip link set dev {on} xdp off, or {link}), or use hook tc{why}"
            )
        }
    };
    format!("{named} {is} attached to {place}; {advice}")
}

/// Returns the programs at the interface, or else at an interface that is on top of it: the kernel
/// refuses another program in both cases.
fn attached(ifindex: u32) -> io::Result<Option<(String, Vec<Foreign>)>> {
    let mut socket = NetlinkSocket::here()?;
    let Some(device) = socket.device(ifindex)? else {
        return Ok(None);
    };
    let occupied = |device: &Device| !device.programs.is_empty();
    let occupied = if occupied(&device) {
        Some(device)
    } else {
        socket
            .devices()?
            .into_iter()
            .find(|upper| upper.is_upper_of(&device) && occupied(upper))
    };
    Ok(occupied.map(|device| {
        let place = (device.name.as_str(), device.index);
        let foreign = device
            .programs
            .iter()
            .map(|(mode, id)| Foreign::new(place, *id, mode))
            .collect();
        (device.name.clone(), foreign)
    }))
}

/// Returns the number of programs that a libxdp dispatcher calls, from its constants.
fn libxdp_count(dispatcher: &ProgramInfo) -> Option<u8> {
    for id in dispatcher.map_ids().ok()?? {
        let Ok(Some(map)) = object::fd_by_id(ObjectKind::Map, id) else {
            continue;
        };
        let mut value = vec![0; map::map_info(map.as_fd()).ok()?.value_size as usize];
        if map::map_lookup(map.as_fd(), &0_u32.to_ne_bytes(), &mut value).ok()?
            && let [LIBXDP_MAGIC, _, count, ..] = value.as_slice()
        {
            return Some(*count);
        }
    }
    None
}

/// Returns the names of the programs that are pinned for the dispatcher, in the order of its calls.
fn libxdp_programs(directory: &Path) -> io::Result<Vec<String>> {
    let name = |program: CalledProgram| {
        let info = ProgramInfo::from_pin(program.pin).ok();
        info.and_then(|info| info.name_as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    Ok(libxdp::called(directory)?.into_iter().map(name).collect())
}

#[cfg(test)]
mod tests;
