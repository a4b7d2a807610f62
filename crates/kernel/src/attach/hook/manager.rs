//! Other managers of programs. The pins that keep their programs identify them.

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use crate::sys::object;

/// The directories of pins: the host's, and bpfman's.
const ROOTS: [&str; 2] = ["/sys/fs/bpf", BPFMAN];
const BPFMAN: &str = "/run/bpfman/fs";
/// The folders in which l3afd pins links and programs, with a folder for each interface, program
/// and version.
const L3AFD: [&str; 2] = ["/sys/fs/bpf/links", "/sys/fs/bpf/progs"];
/// The deepest nesting of folders that a search follows, and the most pins and folders that it
/// visits.
const DEPTH: usize = 6;
const LOOKED_AT: usize = 4096;

/// A daemon that attaches a program of its own to an interface, which calls the programs of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramManager {
    Bpfman,
    L3afd,
}

impl ProgramManager {
    /// Returns the manager that pins its programs at `path`.
    pub fn of(path: &Path, interface: &str) -> Option<Self> {
        let is_l3afd = L3AFD.iter().any(|folder| {
            let inside = path
                .strip_prefix(folder)
                .and_then(|inside| inside.strip_prefix(interface));
            inside.is_ok_and(|inside| inside.components().count() == 3)
        });
        if path.starts_with(BPFMAN) {
            Some(Self::Bpfman)
        } else {
            is_l3afd.then_some(Self::L3afd)
        }
    }
}

/// Returns the first pin of a program, or of the link that attaches it.
pub fn pin_of(program: u32) -> Option<PathBuf> {
    let mut left = LOOKED_AT;
    ROOTS
        .iter()
        .find_map(|root| within(Path::new(root), program, DEPTH, &mut left))
}

fn within(folder: &Path, program: u32, depth: usize, left: &mut usize) -> Option<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        *left = left.checked_sub(1)?;
        let (path, kind) = (entry.path(), entry.file_type().ok()?);
        let found = match kind {
            kind if kind.is_dir() && depth > 0 => within(&path, program, depth - 1, left),
            kind if kind.is_file() && is_pin_of(&path, program) => Some(path),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn is_pin_of(path: &Path, program: u32) -> bool {
    // The kernel says here which program a descriptor is, or which one its link holds. Other
    // objects have no such line.
    let described = object::obj_get(path).and_then(|pinned| {
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pinned.as_raw_fd()))
    });
    described.is_ok_and(|text| {
        let ids = text
            .lines()
            .filter_map(|line| line.strip_prefix("prog_id:"));
        ids.map(str::trim).any(|id| id.parse() == Ok(program))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_known_by_their_pins() {
        for (path, expected) in [
            (
                "/run/bpfman/fs/xdp/dispatcher_4026531840_2_1/dispatcher",
                Some(ProgramManager::Bpfman),
            ),
            (
                "/sys/fs/bpf/progs/eth0/xdp-root/2_0_0/xdp_root_xdp",
                Some(ProgramManager::L3afd),
            ),
            (
                "/sys/fs/bpf/links/eth0/xdp-root/2_0_0/xdp-root_xdp",
                Some(ProgramManager::L3afd),
            ),
            ("/sys/fs/bpf/progs/eth1/xdp-root/2_0_0/xdp_root_xdp", None),
            ("/sys/fs/bpf/links/eth0", None),
            ("/sys/fs/bpf/progs/eth0/xdp_root", None),
            ("/sys/fs/bpf/filter", None),
            ("/run/bpfman/fsx/dispatcher", None),
        ] {
            assert_eq!(
                ProgramManager::of(Path::new(path), "eth0"),
                expected,
                "{path}"
            );
        }
    }
}
