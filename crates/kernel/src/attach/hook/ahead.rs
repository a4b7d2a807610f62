//! TC programs of other owners that run before twinprobe's dispatchers.

use std::io;
use std::path::PathBuf;

use aya::programs::{ProgramInfo, loaded_programs};
use twinprobe_ebpf_common::Direction;

use crate::attach::hook::attachment::tc_programs;
use crate::attach::hook::foreign::OWN_DISPATCHER;
use crate::attach::hook::manager;
use crate::net::rtnl::socket::NetlinkSocket;

/// A program of TCX or of a clsact filter that runs before a dispatcher of twinprobe. If it ends a
/// packet's way (also by TC_ACT_OK), no probe behind it sees the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcAhead {
    pub interface: String,
    pub direction: Direction,
    pub name: String,
    pub id: u32,
    pub pin: Option<PathBuf>,
}

/// Returns the programs before dispatchers at the interfaces of the caller's namespace, by the
/// names of the interfaces.
pub fn tc_ahead() -> io::Result<Vec<TcAhead>> {
    let mut devices = NetlinkSocket::here()?.devices()?;
    devices.sort_by(|one, other| one.name.cmp(&other.name));
    let loaded: Vec<ProgramInfo> = loaded_programs().flatten().collect();
    let name_of = |id: u32| {
        let program = loaded.iter().find(|program| program.id() == id);
        program
            .and_then(ProgramInfo::name_as_str)
            .unwrap_or("without a name")
            .to_owned()
    };
    let mut found = Vec::new();
    for device in devices {
        for (direction, ids) in tc_programs(device.index)? {
            let named: Vec<(u32, String)> = ids.into_iter().map(|id| (id, name_of(id))).collect();
            let last = named
                .iter()
                .rposition(|(_, name)| name == OWN_DISPATCHER)
                .unwrap_or_default();
            let ahead = named
                .into_iter()
                .take(last)
                .filter(|(_, name)| name != OWN_DISPATCHER);
            found.extend(ahead.map(|(id, name)| TcAhead {
                interface: device.name.clone(),
                direction,
                name,
                id,
                pin: manager::pin_of(id),
            }));
        }
    }
    Ok(found)
}
