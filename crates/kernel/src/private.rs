//! Directories that nobody else may enter or exchange, and locks that nobody else can take.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, absolute};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

const ROOT: u32 = 0;
const WRITABLE_FOR_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;
const ALL_BUT_OWNER: u32 = 0o077;
/// The time to wait for a lock. A daemon that was killed while it started a compiler leaves a child that has the daemon's
/// descriptors, locks included, until the child runs another program.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes sure that `directory` exists, that it and what it lies in is nobody else's, and that nobody else can enter it.
pub fn directory(directory: &Path) -> io::Result<()> {
    let existing = directory.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    if let Some(existing) = existing.filter(|existing| *existing != directory) {
        owned(existing)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let metadata = fs::metadata(directory)?;
    if metadata.uid() == geteuid().as_raw() && metadata.mode() & ALL_BUT_OWNER != 0 {
        match fs::set_permissions(directory, Permissions::from_mode(0o700)) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
            changed => changed?,
        }
    }
    owned(directory)
}

/// Fails if another user owns the directory `path` or one that it lies in, or may exchange what is in it.
pub fn owned(path: &Path) -> io::Result<()> {
    let path = absolute(path)?;
    let ours = geteuid().as_raw();
    for at in path.ancestors() {
        let metadata = fs::symlink_metadata(at)?;
        let wrong = if ![ROOT, ours].contains(&metadata.uid()) {
            format!("belongs to the user {}", metadata.uid())
        } else if metadata.is_symlink() {
            owned(&fs::canonicalize(at)?)?;
            continue;
        } else if metadata.mode() & WRITABLE_FOR_ALL != 0 && metadata.mode() & STICKY == 0 {
            "can be changed by every user".to_owned()
        } else {
            continue;
        };
        let (at, what) = (at.display(), path.display());
        let message = format!(
            "{at} {wrong}, who could exchange what the daemon relies on; remove {at}, or choose another place than {what}"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

/// The outcome of an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Taken,
    /// A process of this user, or one that can't be seen, has the lock.
    Held,
    /// Only processes of other users have it. Files that earlier versions have made can be locked by everybody.
    Foreign,
}

/// Tries to lock a file or directory, for [`PATIENCE`] if a process of this user has the lock.
pub fn try_lock(file: &File) -> io::Result<Lock> {
    let end = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock::Taken),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {
                let owners = owners(file.metadata()?.ino());
                let ours = geteuid().as_raw();
                if !owners.is_empty() && owners.iter().all(|owner| ![ROOT, ours].contains(owner)) {
                    return Ok(Lock::Foreign);
                }
                if Instant::now() >= end {
                    return Ok(Lock::Held);
                }
                thread::sleep(PATIENCE / 100);
            }
        }
    }
}

/// Returns the users of the processes that have locked a file with this number, as far as they can be seen. Files of
/// other file systems may have the same number: their users count, too.
fn owners(inode: u64) -> Vec<u32> {
    // 1: FLOCK  ADVISORY  READ  1234 fe:01:5678 0 EOF
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let owner = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, at, ..] = fields[..] else { return None };
        let is_it = at.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode);
        // A process that can't be looked at may be this user's.
        is_it.then(|| fs::metadata(format!("/proc/{pid}")).map_or(ROOT, |process| process.uid()))
    };
    locks.lines().filter_map(owner).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    const NOBODY: u32 = 65534;

    #[test]
    fn directories_of_others_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let ours = temporary.path().join("ours");
        directory(&ours.join("inner")).unwrap();
        assert_eq!(fs::metadata(&ours).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&ours, Permissions::from_mode(0o755)).unwrap();
        directory(&ours).unwrap();
        assert_eq!(fs::metadata(&ours).unwrap().mode() & 0o777, 0o700);

        let theirs = temporary.path().join("theirs");
        fs::create_dir_all(theirs.join("inner")).unwrap();
        chown(&theirs, Some(NOBODY), None).unwrap();
        for path in [theirs.clone(), theirs.join("inner"), theirs.join("new")] {
            let message = directory(&path).unwrap_err().to_string();
            assert!(message.contains("belongs to the user 65534"), "{message}");
        }
        let link = ours.join("link");
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        directory(&link).unwrap_err();
        directory(&link.join("inner")).unwrap_err();

        fs::set_permissions(&ours, Permissions::from_mode(0o777)).unwrap();
        let message = directory(&ours.join("inner")).unwrap_err().to_string();
        assert!(message.contains("can be changed by every user"), "{message}");
        fs::set_permissions(&ours, Permissions::from_mode(0o1777)).unwrap();
        directory(&ours.join("inner")).unwrap();
        // The directory that everybody could enter is closed to all others now.
        fs::set_permissions(&ours, Permissions::from_mode(0o777)).unwrap();
        directory(&ours).unwrap();
        assert_eq!(fs::metadata(&ours).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn locks_of_others_are_told_apart() {
        let temporary = tempfile::tempdir().unwrap();
        fs::set_permissions(temporary.path(), Permissions::from_mode(0o755)).unwrap();
        let path = temporary.path().join("lock");
        fs::write(&path, "").unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(try_lock(&file).unwrap(), Lock::Taken);
        assert_eq!(try_lock(&File::open(&path).unwrap()).unwrap(), Lock::Held);
        file.unlock().unwrap();
        let mut holder = Command::new("flock");
        holder.args(["--no-fork", "--shared"]).arg(&path).args(["sh", "-c", "echo has it; exec sleep 60"]);
        let mut holder = holder.uid(NOBODY).gid(NOBODY).stdout(std::process::Stdio::piped()).spawn().unwrap();
        io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0; 7]).unwrap();
        assert_eq!(try_lock(&file).unwrap(), Lock::Foreign);
        holder.kill().unwrap();
        holder.wait().unwrap();
    }
}
