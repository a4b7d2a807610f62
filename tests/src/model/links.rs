//! The daemon's attachments as another program sees and removes them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use aya_obj::generated::bpf_cmd;
use std::os::fd::AsRawFd;

use crate::Namespace;
use crate::programs::{bpf, pinned};

/// An attachment of a daemon at one hook of an interface.
#[derive(Clone, Debug)]
pub enum Attachment {
    /// A link that is pinned in this directory.
    Link(PathBuf),
    /// A filter at an interface and a direction.
    Filter(&'static str, &'static str),
}

/// Returns all attachments of a daemon whose pins are below `bpffs`.
pub fn attachments(bpffs: &Path, monitor: &Namespace) -> Result<Vec<Attachment>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(bpffs.join("hooks")).into_iter().flatten() {
        let directory = entry?.path();
        if is_attached_in(&directory)? {
            found.push(Attachment::Link(directory));
        }
    }
    found.sort_by_key(|attachment| format!("{attachment:?}"));
    for (interface, direction) in [("mon0", "ingress"), ("mon1", "egress")] {
        if has_filter(monitor, interface, direction)? {
            found.push(Attachment::Filter(interface, direction));
        }
    }
    Ok(found)
}

impl Attachment {
    /// Removes the attachment.
    pub fn remove(&self, monitor: &Namespace) -> Result<()> {
        match self {
            Self::Link(directory) => {
                for pin in link_pins(directory)? {
                    let link = pinned(&pin)?;
                    let mut attr = [link.as_raw_fd() as u32];
                    bpf(bpf_cmd::BPF_LINK_DETACH, &mut attr).context("detach a link")?;
                }
                Ok(())
            }
            Self::Filter(interface, direction) => monitor.run(
                "tc",
                &[
                    "filter", "del", "dev", interface, direction, "prio", "65000",
                ],
            ),
        }
    }

    /// Tells whether its hook has an attachment of the daemon.
    pub fn is_there(&self, monitor: &Namespace) -> Result<bool> {
        match self {
            Self::Link(directory) => is_attached_in(directory),
            Self::Filter(interface, direction) => has_filter(monitor, interface, direction),
        }
    }
}

fn has_filter(monitor: &Namespace, interface: &str, direction: &str) -> Result<bool> {
    Ok(monitor
        .output("tc", &["filter", "show", "dev", interface, direction])?
        .contains("pref 65000 "))
}

fn link_pins(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut pins = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry?.path();
        if path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("link_"))
        {
            pins.push(path);
        }
    }
    Ok(pins)
}

/// Tells whether a link that is pinned in the directory is attached to an interface.
fn is_attached_in(directory: &Path) -> Result<bool> {
    #[repr(C)]
    struct Attr {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    for pin in link_pins(directory)? {
        // The pin may have been replaced meanwhile.
        let Ok(link) = pinned(&pin) else { continue };
        // The fields are `type`, `id`, `prog_id`, padding, and for XDP and TCX links `ifindex`.
        let mut info = [0_u32; 8];
        let mut attr = Attr {
            bpf_fd: link.as_raw_fd() as u32,
            info_len: size_of_val(&info) as u32,
            info: info.as_mut_ptr() as u64,
        };
        bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr).context("ask for a link's interface")?;
        if info[4] != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
