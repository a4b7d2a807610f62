//! The directory of pins, which is in bpffs. The file system is mounted if it is not.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{FsWord, statfs};
use rustix::mount::{MountFlags, mount};

use crate::sys::call::found;

const BPF_FS_MAGIC: FsWord = 0xcafe_4a11;
const USUAL: &str = "/sys/fs/bpf";
/// The name of a symbolic link whose text names the state directory of the daemon that owns the pins. The text is the
/// path of no file, so that a program that goes through the pins can't follow the link to other files.
const OWNER: &str = "owner";
const STATE_DIR: &str = "state-dir:";

/// Makes sure that `directory` exists and lies in bpffs.
pub fn prepare(directory: &Path) -> io::Result<()> {
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if statfs(existing)?.f_type != BPF_FS_MAGIC {
        let mount_point =
            if directory.starts_with(USUAL) { PathBuf::from(USUAL) } else { directory.to_owned() };
        std::fs::create_dir_all(&mount_point)?;
        mount("bpf", &mount_point, "bpf", MountFlags::empty(), None)?;
    }
    std::fs::create_dir_all(directory)
}

/// The claim of one daemon to the directory of pins. The lock is on the directory itself, whatever path leads there,
/// and ends with the process. Without the lock the link that names the owner means nothing.
#[derive(Debug)]
pub struct Claim {
    owner: PathBuf,
    /// The directory, locked while the daemon lives.
    _directory: File,
}

impl Claim {
    /// Locks `directory` and names `state_dir` in a link there. Fails with [`io::ErrorKind::ResourceBusy`] if another
    /// daemon, which the error names, has the lock.
    pub fn take(directory: &Path, state_dir: &Path) -> io::Result<Self> {
        let file = File::open(directory)?;
        let owner = directory.join(OWNER);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {
                let of = std::fs::read_link(&owner).ok();
                let of = of.as_deref().and_then(Path::to_str).and_then(|text| text.strip_prefix(STATE_DIR));
                let of = of.map_or_else(String::new, |of| format!(", whose state directory is {of}"));
                let message = format!("it is in use by another twinprobe{of}; give each its own --bpffs");
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
        }
        let claim = Self { owner, _directory: file };
        claim.give_up()?;
        symlink(format!("{STATE_DIR}{}", std::path::absolute(state_dir)?.display()), &claim.owner)?;
        Ok(claim)
    }

    /// Removes the link that names the owner; the lock ends with the process.
    pub fn give_up(&self) -> io::Result<()> {
        found(std::fs::remove_file(&self.owner)).map(drop)
    }
}
