//! TC by netlink, for kernels without TCX: a direct-action filter under the clsact qdisc. Unlike a
//! link, a filter stays when its owner ends, and anybody can delete or overwrite it. A filter is
//! the daemon's if its program is the one that the daemon has pinned; any other is left alone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::hook::{Hook, Position};

use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::net::rtnl::filter::{Filter, FilterLocation, Parent};
use crate::net::rtnl::socket::NetlinkSocket;
use crate::sys::object;
use crate::sys::prog::{self, ProgIdentity};

/// The priorities of the daemon's filters. The kernel gives a filter without a priority a priority
/// below 49152.
const FIRST: u16 = 1;
const LAST: u16 = 65000;

/// The name that `tc filter show` prints.
const NAME: &str = "tp_dispatcher";

/// The names of the pins of the program in the filter, and of the program that is about to replace
/// it.
pub const PIN: &str = "clsact";
const NEW_PIN: &str = "clsact_new";
pub const PINS: [&str; 2] = [PIN, NEW_PIN];

/// The daemon's filter at one hook of an interface.
#[derive(Debug)]
pub struct ClsactFilter {
    /// A socket in the interface's namespace. Any thread may use it.
    socket: Mutex<NetlinkSocket>,
    parent: Parent,
    place: FilterLocation,
    program: ProgIdentity,
}

impl ClsactFilter {
    /// Attaches `program`. Call this in the interface's namespace.
    pub fn attach(
        place: &HookPoint,
        program: BorrowedFd<'_>,
        pins: &Path,
    ) -> Result<Self, AttachError> {
        let failed = |error| place.failed(error);
        let parent = parent(place.ifindex, place.hook);
        let mut socket = NetlinkSocket::here().map_err(failed)?;
        socket.add_clsact(place.ifindex).map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) => AttachError::Occupied(format!(
                "{0} has the qdisc ingress, which leaves no room for clsact; delete it first (tc qdisc del \
                 dev {0} ingress)",
                place.interface
            )),
            _ => failed(error),
        })?;
        let filters = socket.filters(parent).map_err(failed)?;
        let priority = priority(place.position, &filters).ok_or_else(|| {
            let (interface, direction) = (&place.interface, place.hook.direction());
            AttachError::Occupied(format!(
                "a filter of another kind has the {} priority at {direction} of {interface}; give it another \
                 one, or ask for the other position",
                if place.position == Position::First { "first" } else { "last" },
            ))
        })?;
        let program_identity = prog::prog_identity(program).map_err(failed)?;
        // The program is pinned first, so that the next daemon recognises the filter even if this
        // one ends in between.
        let pin = pin(program, pins, PIN).map_err(failed)?;
        let place = socket
            .set_filter(
                parent,
                FilterLocation {
                    priority,
                    handle: 0,
                },
                NAME,
                program,
            )
            .and_then(|()| find(&mut socket, parent, program_identity.id))
            .and_then(|place| {
                place.ok_or_else(|| io::Error::other("the filter disappeared at once"))
            });
        match place {
            Ok(place) => Ok(Self {
                socket: Mutex::new(socket),
                parent,
                place,
                program: program_identity,
            }),
            Err(error) => {
                let _ = std::fs::remove_file(pin);
                Err(failed(error))
            }
        }
    }

    /// Adopts the filter of an earlier daemon: the filter whose program is pinned. `None` if there
    /// is no such filter. Call this in the interface's namespace.
    pub fn adopt(ifindex: u32, hook: Hook, pins: &Path) -> io::Result<Option<Self>> {
        let mut pinned = Vec::new();
        for entry in std::fs::read_dir(pins)? {
            let path = entry?.path();
            if path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(PIN))
            {
                pinned.push((prog::prog_identity(object::obj_get(&path)?.as_fd())?, path));
            }
        }
        if pinned.is_empty() {
            return Ok(None);
        }
        let mut socket = NetlinkSocket::here()?;
        let parent = parent(ifindex, hook);
        for (program, path) in &pinned {
            let Some(place) = find(&mut socket, parent, program.id)? else {
                continue;
            };
            // The program in the filter is the present one, even if the earlier daemon was about to
            // replace it, so it gets the pin's name for the present one.
            std::fs::rename(path, pins.join(PIN))?;
            return Ok(Some(Self {
                socket: Mutex::new(socket),
                parent,
                place,
                program: *program,
            }));
        }
        Ok(None)
    }

    /// Replaces the present program with `program`. Fails with `NotFound` if another owner has
    /// removed or replaced the filter.
    pub fn replace(&mut self, program: BorrowedFd<'_>, pins: &Path) -> io::Result<()> {
        if !self.is_there()? {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the filter was removed by somebody",
            ));
        }
        let identity = prog::prog_identity(program)?;
        let new = pin(program, pins, NEW_PIN)?;
        self.socket
            .lock()
            .set_filter(self.parent, self.place, NAME, program)?;
        self.program = identity;
        std::fs::rename(new, pins.join(PIN))
    }

    /// Removes the filter if it is still the daemon's filter. The qdisc stays, because other
    /// filters may use it now.
    pub fn detach(&self) -> io::Result<()> {
        if self.is_there()? {
            self.socket.lock().remove_filter(self.parent, self.place)?;
        }
        Ok(())
    }

    /// Returns the program that packets of the interface meet; `None` if this is not the daemon's
    /// program.
    pub fn program_at(&self, ifindex: u32) -> io::Result<Option<ProgIdentity>> {
        Ok((self.parent.ifindex == ifindex && self.is_there()?).then_some(self.program))
    }

    fn is_there(&self) -> io::Result<bool> {
        Ok(self.socket.lock().filter_program(self.parent, self.place)? == Some(self.program.id))
    }
}

/// Returns the ids of the programs in all filters at a hook, in the order in which they run. Call
/// this in the interface's namespace.
pub fn programs(ifindex: u32, hook: Hook) -> io::Result<Vec<u32>> {
    let filters = NetlinkSocket::here()?.filters(parent(ifindex, hook))?;
    Ok(filters
        .into_iter()
        .filter_map(|filter| filter.program)
        .collect())
}

fn parent(ifindex: u32, hook: Hook) -> Parent {
    let egress = match Direction::from(hook) {
        Direction::Ingress => false,
        Direction::Egress => true,
    };
    Parent { ifindex, egress }
}

fn pin(program: BorrowedFd<'_>, pins: &Path, name: &str) -> io::Result<PathBuf> {
    let path = pins.join(name);
    let _ = std::fs::remove_file(&path);
    object::obj_pin(program, &path)?;
    Ok(path)
}

fn find(
    socket: &mut NetlinkSocket,
    parent: Parent,
    program: u32,
) -> io::Result<Option<FilterLocation>> {
    let found = socket
        .filters(parent)?
        .into_iter()
        .find(|filter| filter.program == Some(program));
    Ok(found.map(|filter| filter.place))
}

/// Returns the priority of a new filter that runs before or after all of `filters`. The kernel puts
/// a filter before the filters of the same priority, which must be of the same kind. `None` if
/// there is no such priority.
fn priority(position: Position, filters: &[Filter]) -> Option<u16> {
    let can_share = |priority| {
        filters
            .iter()
            .all(|filter| filter.place.priority != priority || filter.is_alike)
    };
    let after = filters
        .iter()
        .map(|filter| filter.place.priority.saturating_add(1))
        .max();
    let priority = match position {
        Position::First => FIRST,
        Position::Last => after.unwrap_or(LAST).max(LAST),
    };
    can_share(priority).then_some(priority)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use twinprobe_ebpf_common::hook::ProgramKind;

    use super::*;
    use crate::net::netns::Netns;
    use crate::net::netns::testing::Named;
    use crate::sys::asm;
    use crate::sys::bpffs::testing::PinsDirectory;
    use crate::sys::prog::ProgLoad;

    fn filter(priority: u16, is_alike: bool) -> Filter {
        Filter {
            place: FilterLocation {
                priority,
                handle: 1,
            },
            is_alike,
            program: None,
        }
    }

    #[test]
    fn priorities_are_before_or_after_all_others() {
        for (filters, first, last) in [
            (vec![], Some(1), Some(65000)),
            (
                vec![filter(2, false), filter(49152, true)],
                Some(1),
                Some(65000),
            ),
            (
                vec![filter(1, true), filter(65000, false)],
                Some(1),
                Some(65001),
            ),
            (
                vec![filter(1, false), filter(65535, true)],
                None,
                Some(65535),
            ),
            (
                vec![filter(1, false), filter(1, true), filter(65535, false)],
                None,
                None,
            ),
        ] {
            assert_eq!(priority(Position::First, &filters), first, "{filters:?}");
            assert_eq!(priority(Position::Last, &filters), last, "{filters:?}");
        }
    }

    /// Loads a TC program that does nothing; each `kind` gives a program of another tag.
    fn program(kind: i32) -> OwnedFd {
        let pass = asm::pass_program(kind);
        prog::prog_load(&ProgLoad::new("tp_test", ProgramKind::Tc, &pass), None).unwrap()
    }

    /// One end of a veth pair in a namespace of its own, and a directory for the pins there.
    struct VethEnd {
        pins: PinsDirectory,
        place: HookPoint,
        named: Named,
    }

    impl VethEnd {
        /// Makes the pair. `pins` is the name of the directory, which each test has for itself.
        fn new(pins: &str) -> Self {
            let named = Named::new();
            named.ip("link add tpa type veth peer name tpb");
            let netns = Netns::open(&named.path()).unwrap();
            let index = NetlinkSocket::open(&netns)
                .unwrap()
                .device_by_name("tpa")
                .unwrap()
                .unwrap()
                .index;
            Self {
                pins: PinsDirectory::new(pins),
                place: HookPoint {
                    netns,
                    interface: "tpa".into(),
                    ifindex: index,
                    hook: Hook::TcEgress,
                    position: Position::First,
                },
                named,
            }
        }

        fn attach(&self, program: &OwnedFd) -> Result<ClsactFilter, AttachError> {
            let (place, pins) = (&self.place, &self.pins.0);
            place
                .netns
                .run(|| ClsactFilter::attach(place, program.as_fd(), pins))
                .unwrap()
        }

        fn adopt(&self) -> Option<ClsactFilter> {
            let (place, pins) = (&self.place, &self.pins.0);
            place
                .netns
                .run(|| ClsactFilter::adopt(place.ifindex, place.hook, pins))
                .unwrap()
                .unwrap()
        }

        /// Runs `tc` inside of the namespace, and returns its output.
        fn tc(&self, arguments: &str) -> String {
            let mut command = std::process::Command::new("tc");
            let output = command
                .args(["-n", &self.named.0])
                .args(arguments.split_whitespace())
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).unwrap()
        }
    }

    fn is_at(filter: &ClsactFilter, index: u32) -> bool {
        filter.program_at(index).unwrap().is_some()
    }

    #[test]
    fn filters_are_known_by_their_programs() {
        let end = VethEnd::new("clsact");
        let (index, pins) = (end.place.ifindex, &end.pins.0);
        let [first, second, third] = [0, 1, 2].map(program);
        let tag = |program: &OwnedFd| Some(prog::prog_identity(program.as_fd()).unwrap().tag);
        let found =
            |filter: &ClsactFilter| filter.program_at(index).unwrap().map(|program| program.tag);

        assert!(end.adopt().is_none());
        let mut ours = end.attach(&first).unwrap();
        assert!(is_at(&ours, index) && !is_at(&ours, index + 1));
        assert_eq!(found(&ours), tag(&first));
        assert_eq!(found(&end.adopt().unwrap()), tag(&first));
        ours.replace(second.as_fd(), pins).unwrap();
        assert_eq!(found(&end.adopt().unwrap()), tag(&second));
        // The earlier daemon ends before it replaces the filter, and after that.
        pin(third.as_fd(), pins, NEW_PIN).unwrap();
        assert_eq!(found(&end.adopt().unwrap()), tag(&second));
        pin(third.as_fd(), pins, NEW_PIN).unwrap();
        ours.socket
            .lock()
            .set_filter(ours.parent, ours.place, NAME, third.as_fd())
            .unwrap();
        assert_eq!(found(&ours), None);
        assert_eq!(found(&end.adopt().unwrap()), tag(&third));
    }

    #[test]
    fn filters_of_other_owners_are_left_alone() {
        let end = VethEnd::new("clsact_others");
        let index = end.place.ifindex;
        let [first, second, third] = [0, 1, 2].map(program);

        // Another owner's program takes the place of the daemon's.
        let ours = end.attach(&third).unwrap();
        ours.socket
            .lock()
            .set_filter(ours.parent, ours.place, "theirs", first.as_fd())
            .unwrap();
        assert!(!is_at(&ours, index) && end.adopt().is_none());
        ours.detach().unwrap();
        assert!(end.tc("filter show dev tpa egress").contains("theirs"));
        let mut again = end.attach(&second).unwrap();
        let shown = end.tc("filter show dev tpa egress");
        assert!(
            shown.find(NAME).unwrap() < shown.find("theirs").unwrap(),
            "{shown}"
        );
        end.tc("qdisc del dev tpa clsact");
        assert!(!is_at(&again, index) && end.adopt().is_none());
        assert_eq!(
            again
                .replace(first.as_fd(), &end.pins.0)
                .unwrap_err()
                .kind(),
            io::ErrorKind::NotFound
        );
        again.detach().unwrap();
        // The older ingress qdisc occupies the place of clsact.
        end.tc("qdisc add dev tpa ingress");
        let refused = end.attach(&second).unwrap_err().to_string();
        assert!(refused.contains("the qdisc ingress"), "{refused}");
    }
}
