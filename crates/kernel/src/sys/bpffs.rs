//! The directory of pins, which is in bpffs. The daemon mounts this file system if it is not
//! mounted.

use std::fs::File;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{FsWord, statfs};
use rustix::mount::{MountFlags, mount};

use crate::sys::call::found;
use twinprobe_state_files::private::{self, Lock, try_lock};

const BPF_FS_MAGIC: FsWord = 0xcafe_4a11;
const USUAL: &str = "/sys/fs/bpf";
/// The name of a symbolic link whose text names the state directory of the daemon that owns the
/// pins. The text is the path of no file, so a program that lists the pins can't follow the link to
/// other files.
const OWNER: &str = "owner";
const STATE_DIR: &str = "state-dir:";
/// The name of a directory that only the owner of the pins can lock. Earlier versions locked the
/// directory around it, which everybody could open.
const LOCK: &str = "lock";

/// Makes sure that `directory` exists, lies in bpffs and belongs to this user.
pub fn prepare(directory: &Path) -> io::Result<()> {
    let existing = directory
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(Path::new("/"));
    if statfs(existing)?.f_type != BPF_FS_MAGIC {
        let mount_point = if directory.starts_with(USUAL) {
            PathBuf::from(USUAL)
        } else {
            directory.to_owned()
        };
        std::fs::create_dir_all(&mount_point)?;
        mount_at(&mount_point)?;
    }
    private::directory(directory)
}

fn mount_at(mount_point: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Without a mode any user could create the files that the daemon expects there.
    mount("bpf", mount_point, "bpf", flags, Some(c"mode=0700")).map_err(|error| match error.into() {
        error if io::Error::kind(&error) == io::ErrorKind::PermissionDenied => {
            let place = mount_point.display();
            let message = format!(
                "bpffs is not mounted, and this daemon may not mount it: `mount -t bpf -o mode=0700 bpf {place}` on the host \
                 (mountBpffs in the chart)"
            );
            io::Error::new(error.kind(), message)
        }
        error => error,
    })
}

/// The claim of one daemon to the directory of pins. The claim is a lock on directories, which
/// counts for every path to them and ends with the process. Without the lock, the link that names
/// the owner has no meaning.
#[derive(Debug)]
pub struct PinsClaim {
    owner: PathBuf,
    lock: PathBuf,
    /// The directory of pins, and the directory [`LOCK`] in it. Both are locked while the daemon
    /// lives.
    _locked: [File; 2],
}

impl PinsClaim {
    /// Locks `directory` and names `state_dir` in a link there. Fails with
    /// [`io::ErrorKind::ResourceBusy`] if another daemon, which the error names, has the lock.
    pub fn take(directory: &Path, state_dir: &Path) -> io::Result<Self> {
        let (owner, lock) = (directory.join(OWNER), directory.join(LOCK));
        let outer = File::open(directory)?;
        let held = try_lock(&outer)? == Lock::Held;
        private::directory(&lock)?;
        let inner = File::open(&lock)?;
        if held || try_lock(&inner)? != Lock::Taken {
            let of = std::fs::read_link(&owner).ok();
            let of = of
                .as_deref()
                .and_then(Path::to_str)
                .and_then(|text| text.strip_prefix(STATE_DIR));
            let of = of.map_or_else(String::new, |of| format!(", whose state directory is {of}"));
            let message =
                format!("it is in use by another twinprobe{of}; give each its own --bpffs");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        let claim = Self {
            owner,
            lock,
            _locked: [outer, inner],
        };
        found(std::fs::remove_file(&claim.owner))?;
        symlink(
            format!("{STATE_DIR}{}", std::path::absolute(state_dir)?.display()),
            &claim.owner,
        )?;
        Ok(claim)
    }

    /// Removes the files of the claim; the locks end with the process.
    pub fn give_up(&self) -> io::Result<()> {
        found(std::fs::remove_file(&self.owner))?;
        std::fs::remove_dir(&self.lock)
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// A directory in bpffs that is removed on drop.
    pub struct PinsDirectory(pub PathBuf);

    impl PinsDirectory {
        /// Makes a directory for this name and this process. Mounts the file system unless it is
        /// mounted.
        pub fn new(name: &str) -> Self {
            // Tests are processes that run side by side: a second mount would hide the pins in the
            // first one.
            let lock = File::open("/sys/fs").unwrap();
            lock.lock().unwrap();
            let directory = Path::new(USUAL).join(format!("tp_{name}_{}", std::process::id()));
            prepare(&directory).unwrap();
            Self(directory)
        }
    }

    impl Drop for PinsDirectory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use rustix::mount::{UnmountFlags, unmount};

    use super::*;

    #[test]
    fn a_file_system_that_is_mounted_is_nobody_elses() {
        let temporary = tempfile::tempdir().unwrap();
        let at = temporary.path();
        mount_at(at).unwrap();
        let (kind, mode) = (
            statfs(at).unwrap().f_type,
            std::fs::metadata(at).unwrap().mode(),
        );
        unmount(at, UnmountFlags::empty()).unwrap();
        assert_eq!((kind, mode & 0o777), (BPF_FS_MAGIC, 0o700));
    }
}
