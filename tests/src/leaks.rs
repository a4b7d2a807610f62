//! Search for kernel objects that a test has left.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use aya_obj::generated::bpf_cmd;

/// The programs, maps and links of this machine, by kind and id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelObjects(pub(crate) BTreeSet<(&'static str, u32)>);

impl KernelObjects {
    /// Returns all objects that the kernel has now.
    pub fn now() -> Result<Self> {
        let kinds = [
            ("program", bpf_cmd::BPF_PROG_GET_NEXT_ID),
            ("map", bpf_cmd::BPF_MAP_GET_NEXT_ID),
            ("link", bpf_cmd::BPF_LINK_GET_NEXT_ID),
        ];
        let mut out = BTreeSet::new();
        for (kind, cmd) in kinds {
            let mut id = 0;
            while let Some(next) = next_id(cmd, id)? {
                out.insert((kind, next));
                id = next;
            }
        }
        Ok(Self(out))
    }

    /// Returns the objects that exist now and did not exist then.
    pub fn new_since(&self) -> Result<Vec<(&'static str, u32)>> {
        Ok(Self::now()?.0.difference(&self.0).copied().collect())
    }

    /// Waits until the kernel, which frees in the background, holds no new objects. New objects
    /// count only if they have one of these names: other programs on this machine also come and go.
    pub fn wait_for_no_more(&self, names: &[&str]) -> Result<()> {
        let limit = Instant::now() + Duration::from_secs(30);
        while !self.new_since()?.is_empty() {
            if Instant::now() > limit {
                let left = self.new_since()?;
                let ours: Vec<_> = left
                    .iter()
                    .filter_map(|(kind, id)| named(kind, *id))
                    .collect();
                let ours: Vec<_> = ours
                    .iter()
                    .filter(|name| names.contains(&name.as_str()))
                    .collect();
                ensure!(ours.is_empty(), "left behind: {ours:?} of {left:?}");
                return Ok(());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Returns the name of a program or map, or of the program behind a link.
fn named(kind: &str, id: u32) -> Option<String> {
    let program = |id| {
        let found = aya::programs::loaded_programs()
            .flatten()
            .find(|program| program.id() == id)?;
        found.name_as_str().map(str::to_owned)
    };
    match kind {
        "program" => program(id),
        "map" => {
            let map = aya::maps::loaded_maps()
                .flatten()
                .find(|map| map.id() == id)?;
            map.name_as_str().map(str::to_owned)
        }
        "link" => {
            let link = aya::programs::loaded_links()
                .flatten()
                .find(|link| link.id() == id)?;
            program(link.program_id())
        }
        _ => None,
    }
}

/// Returns the id after `id` without opening the object: opening a map that is being freed, as
/// listing tools do, can keep a prog-array for good (seen on Linux 6.18: its clearing is scheduled
/// twice and one reference is lost).
fn next_id(cmd: bpf_cmd, id: u32) -> Result<Option<u32>> {
    #[repr(C)]
    struct Attr {
        start_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let mut attr = Attr {
        start_id: id,
        next_id: 0,
        open_flags: 0,
    };
    // SAFETY: a live structure of the size that is passed; the command writes into it only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            cmd as libc::c_long,
            &raw mut attr,
            size_of::<Attr>(),
        )
    };
    if result == 0 {
        return Ok(Some(attr.next_id));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOENT) {
        Ok(None)
    } else {
        Err(error.into())
    }
}
