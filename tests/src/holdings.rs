//! Search for the kernel objects that a daemon holds, and for those without a holder.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aya_obj::generated::{bpf_cmd, bpf_prog_info};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::leaks::KernelObjects;
use crate::programs::{bpf, opened, pinned};
use crate::wait::wait_for;

const BPFFS: &str = "/sys/fs/bpf";
const PROG_ARRAY: u32 = 3;
const ARRAY_OF_MAPS: u32 = 12;
const HASH_OF_MAPS: u32 = 13;
/// The types of maps that hold programs or maps.
const HOLDERS: [u32; 3] = [PROG_ARRAY, ARRAY_OF_MAPS, HASH_OF_MAPS];
/// The largest number of maps that a program uses.
const MAX_MAPS: u32 = 64;

impl KernelObjects {
    /// Returns the objects that are pinned below `directory`, and the objects that these hold: a
    /// link its program, a program its maps, a prog-array its programs, a map of maps its inner
    /// maps.
    pub fn pinned(directory: &Path) -> Result<Self> {
        let mut walk = Walk::default();
        walk.pins(directory, None)?;
        Ok(Self(walk.found))
    }

    /// Returns the open objects of a process, and the objects that these keep alive.
    pub fn of_process(pid: u32) -> Result<Self> {
        let mut walk = Walk::default();
        walk.process(pid)?;
        Ok(Self(walk.found))
    }

    /// Returns the objects in only one of the two sets.
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, u32)> {
        self.0.symmetric_difference(&other.0).copied().collect()
    }

    /// Returns the ids of the programs.
    pub fn programs(&self) -> BTreeSet<u32> {
        self.0
            .iter()
            .filter(|(kind, _)| *kind == "program")
            .map(|(_, id)| *id)
            .collect()
    }

    /// Returns the numbers of programs, maps and links.
    pub fn counts(&self) -> [(&'static str, usize); 3] {
        ["program", "map", "link"]
            .map(|kind| (kind, self.0.iter().filter(|(k, _)| *k == kind).count()))
    }

    /// Waits until every object that came since `self` is held by the pins in `directory`, by the
    /// process `pid`, or by another process. An object without a holder, such as the program of a
    /// forgotten filter, is a leak: it is found twice in a row. Objects of other tests also appear
    /// without a holder for a moment, but other ones each time.
    pub fn wait_for_only(&self, directory: &Path, pid: u32) -> Result<()> {
        let mut before: Option<BTreeSet<_>> = None;
        wait_for("nothing left behind", Duration::from_secs(10), || {
            let mut theirs = Walk {
                careful: true,
                ..Walk::default()
            };
            theirs.others(directory, pid)?;
            let (pins, open) = (Self::pinned(directory)?, Self::of_process(pid)?);
            let left: BTreeSet<_> = (self.new_since()?.into_iter())
                .filter(|object| {
                    ![&pins.0, &open.0, &theirs.found]
                        .iter()
                        .any(|held| held.contains(object))
                })
                .collect();
            let leaks: Vec<_> = left
                .iter()
                .filter(|object| {
                    before
                        .as_ref()
                        .is_none_or(|before| before.contains(*object))
                })
                .copied()
                .collect();
            before = Some(left);
            ensure!(leaks.is_empty(), "left behind: {leaks:?}");
            Ok(())
        })
    }
}

/// Returns a copy of a descriptor of another process; `None` if the process or the descriptor has
/// disappeared.
fn copied(pid: u32, number: RawFd) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid.try_into().ok()?)?, PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()
}

#[derive(Default)]
struct Walk {
    found: BTreeSet<(&'static str, u32)>,
    /// Forbids to open maps by id: the kernel may be freeing the map, and a prog-array that is
    /// opened then stays for good.
    careful: bool,
}

/// The object behind a descriptor, by `/proc/PID/fdinfo`.
struct FdInfo {
    link: Option<u32>,
    program: Option<u32>,
    map: Option<u32>,
    map_type: u32,
    key_size: u32,
}

impl FdInfo {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            text.lines().find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix(":\t")?
                    .parse::<u32>()
                    .ok()
            })
        };
        Self {
            link: field("link_id"),
            program: field("prog_id"),
            map: field("map_id"),
            map_type: field("map_type").unwrap_or_default(),
            key_size: field("key_size").unwrap_or_default(),
        }
    }

    fn of(fd: BorrowedFd<'_>) -> Result<Self> {
        Ok(Self::parse(&fs::read_to_string(format!(
            "/proc/self/fdinfo/{}",
            fd.as_raw_fd()
        ))?))
    }
}

impl Walk {
    fn pins(&mut self, directory: &Path, except: Option<&Path>) -> Result<()> {
        if Some(directory) == except || !directory.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                self.pins(&path, except)?;
            // The entry may have disappeared, or be of a kind that can't be opened.
            } else if let Ok(fd) = pinned(&path) {
                self.descriptor(
                    &FdInfo::of(std::os::fd::AsFd::as_fd(&fd))?,
                    Some(std::os::fd::AsFd::as_fd(&fd)),
                )?;
            }
        }
        Ok(())
    }

    fn process(&mut self, pid: u32) -> Result<()> {
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).context("the process runs")? {
            let entry = entry?;
            // The descriptor may have been closed meanwhile.
            let Ok(text) = fs::read_to_string(entry.path()) else {
                continue;
            };
            let info = FdInfo::parse(&text);
            // An object that only a map of another process holds is found through a copy of its
            // descriptor.
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let copy = match number.filter(|_| self.careful && HOLDERS.contains(&info.map_type)) {
                Some(number) => copied(pid, number),
                None => None,
            };
            self.descriptor(&info, copy.as_ref().map(std::os::fd::AsFd::as_fd))?;
        }
        Ok(())
    }

    fn others(&mut self, directory: &Path, pid: u32) -> Result<()> {
        self.pins(Path::new(BPFFS), Some(directory))?;
        // Containers, and tests of the documentation, have mounts of their own.
        let mut mounts = BTreeSet::from([fs::read_link("/proc/self/ns/mnt")?]);
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(other) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // The process may have ended.
            if other != pid {
                let _ = self.process(other);
            }
            if fs::read_link(format!("/proc/{other}/ns/mnt"))
                .is_ok_and(|namespace| mounts.insert(namespace))
            {
                let _ = self.pins(Path::new(&format!("/proc/{other}/root{BPFFS}")), None);
            }
        }
        Ok(())
    }

    fn descriptor(&mut self, info: &FdInfo, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        if let Some(link) = info.link {
            self.found.insert(("link", link));
        }
        if let Some(id) = info.map {
            self.map(id, fd.map(|fd| (fd, info)))?;
        } else if let Some(id) = info.program {
            self.program(id)?;
        }
        Ok(())
    }

    fn program(&mut self, id: u32) -> Result<()> {
        if !self.found.insert(("program", id)) {
            return Ok(());
        }
        // A program that was removed meanwhile keeps no maps alive.
        let Ok(fd) = opened(bpf_cmd::BPF_PROG_GET_FD_BY_ID, id) else {
            return Ok(());
        };
        let mut ids = [0_u32; MAX_MAPS as usize];
        // SAFETY: all fields are integers or byte arrays; zero is a value of each.
        let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
        (info.nr_map_ids, info.map_ids) = (MAX_MAPS, ids.as_mut_ptr() as u64);
        #[repr(C)]
        struct Attr {
            bpf_fd: u32,
            info_len: u32,
            info: u64,
        }
        let mut attr = Attr {
            bpf_fd: fd.as_raw_fd() as u32,
            info_len: size_of::<bpf_prog_info>() as u32,
            info: (&raw mut info) as u64,
        };
        bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr).context("ask for a program's maps")?;
        for id in &ids[..info.nr_map_ids.min(MAX_MAPS) as usize] {
            self.map(*id, None)?;
        }
        Ok(())
    }

    fn map(&mut self, id: u32, open: Option<(BorrowedFd<'_>, &FdInfo)>) -> Result<()> {
        if !self.found.insert(("map", id)) {
            return Ok(());
        }
        match open {
            Some((fd, info)) => self.slots(fd, info),
            None if self.careful => Ok(()),
            None => {
                let Ok(fd) = opened(bpf_cmd::BPF_MAP_GET_FD_BY_ID, id) else {
                    return Ok(());
                };
                let fd = std::os::fd::AsFd::as_fd(&fd);
                self.slots(fd, &FdInfo::of(fd)?)
            }
        }
    }

    /// Adds the programs in a prog-array, and the maps in a map of maps.
    fn slots(&mut self, fd: BorrowedFd<'_>, info: &FdInfo) -> Result<()> {
        if !HOLDERS.contains(&info.map_type) {
            return Ok(());
        }
        #[repr(C)]
        struct Attr {
            map_fd: u32,
            padding: u32,
            key: u64,
            /// The value, or the next key.
            out: u64,
            flags: u64,
        }
        let call = |command, key: u64, out: u64| {
            let mut attr = Attr {
                map_fd: fd.as_raw_fd() as u32,
                padding: 0,
                key,
                out,
                flags: 0,
            };
            bpf(command, &mut attr).is_ok()
        };
        let (mut key, mut next) = (
            vec![0_u8; info.key_size as usize],
            vec![0_u8; info.key_size as usize],
        );
        let mut found = call(bpf_cmd::BPF_MAP_GET_NEXT_KEY, 0, key.as_mut_ptr() as u64);
        while found {
            let mut id = 0_u32;
            // The lookup of an empty slot fails.
            if call(
                bpf_cmd::BPF_MAP_LOOKUP_ELEM,
                key.as_ptr() as u64,
                (&raw mut id) as u64,
            ) {
                match info.map_type {
                    PROG_ARRAY => self.program(id)?,
                    _ => self.map(id, None)?,
                }
            }
            found = call(
                bpf_cmd::BPF_MAP_GET_NEXT_KEY,
                key.as_ptr() as u64,
                next.as_mut_ptr() as u64,
            );
            std::mem::swap(&mut key, &mut next);
        }
        Ok(())
    }
}
