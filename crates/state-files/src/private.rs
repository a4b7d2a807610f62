//! Directories that no other user may enter or exchange, and locks that no other user can take.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf, absolute};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::StatVfsMountFlags;
use rustix::process::geteuid;

const ROOT: u32 = 0;
const WRITABLE_FOR_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;
const WRITABLE_FOR_OTHERS: u32 = 0o022;
const ALL_BUT_OWNER: u32 = 0o077;
/// The number of symbolic links that a path may lead through, as for the kernel.
const LINKS: u32 = 40;
/// The time to wait for a lock. A daemon that was killed while it started a compiler leaves a child
/// that has the daemon's descriptors, locks included, until the child runs another program.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Makes sure that `directory` exists, that it and its parent directories belong to this user or
/// root, and that no other user can enter it.
pub fn directory(directory: &Path) -> io::Result<()> {
    let existing = directory
        .ancestors()
        .find(|path| fs::symlink_metadata(path).is_ok());
    if let Some(existing) = existing.filter(|existing| *existing != directory) {
        owned(existing)?;
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let metadata = fs::metadata(directory)?;
    if metadata.uid() == geteuid().as_raw() && metadata.mode() & ALL_BUT_OWNER != 0 {
        match fs::set_permissions(directory, Permissions::from_mode(0o700)) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
            changed => changed?,
        }
    }
    owned(directory)
}

/// Fails if another user owns the directory `path` or one of its parents, or may replace its
/// content.
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
            "{at} {wrong}, who could exchange files of the daemon; remove {at}, or choose another place than {what}"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

/// Fails if another user than root and the daemon's could change the file at `path`: the file or
/// directory itself, its parent directories, and the symbolic links, wherever they lead.
pub fn trusted(path: &Path) -> io::Result<()> {
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    expect_trusted(&at, path, &fs::metadata(&at)?, false)?;
    let mut left = parts(&absolute(path)?);
    while let Some(part) = left.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        let metadata = fs::symlink_metadata(&next)?;
        expect_trusted(&next, path, &metadata, left.is_empty())?;
        if !metadata.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        left.extend(parts(&target));
    }
    Ok(())
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |part| match part {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

fn expect_trusted(at: &Path, path: &Path, metadata: &Metadata, is_last: bool) -> io::Result<()> {
    let mode = metadata.mode();
    // In a directory with the sticky bit others can't replace foreign files; in the last directory
    // they could add files.
    let is_sticky = metadata.is_dir() && mode & STICKY != 0 && !is_last;
    let is_open = !metadata.is_symlink() && mode & WRITABLE_FOR_OTHERS != 0 && !is_sticky;
    let wrong = if ![ROOT, geteuid().as_raw()].contains(&metadata.uid()) {
        format!("belongs to the user {}", metadata.uid())
    } else if is_open && !is_read_only(at) {
        "can be changed by other users".to_owned()
    } else {
        return Ok(());
    };
    let (at, what) = (at.display(), path.display());
    let message = format!(
        "{at} {wrong}, and {what} gives rights: only root or the daemon's user may be able to change it; chown root {at} \
         and chmod go-w {at}, or choose another place"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Volumes of Kubernetes are open to all by their modes, and mounted read-only.
fn is_read_only(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The outcome of an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Taken,
    /// A process of this user, or a process that is not visible, has the lock.
    Held,
    /// Only processes of other users have the lock. Any user can lock the files that earlier
    /// versions have made.
    Foreign,
}

/// Tries to lock a file or directory. If a process of this user has the lock, tries again for
/// [`PATIENCE`].
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

/// Returns the users of the processes that have locked a file with this number, as far as they are
/// visible. Files of other file systems may have the same number: their users also count.
fn owners(inode: u64) -> Vec<u32> {
    // 1: FLOCK  ADVISORY  READ  1234 fe:01:5678 0 EOF
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let owner = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, at, ..] = fields[..] else {
            return None;
        };
        let is_it = at.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode);
        // A process that can't be examined may belong to this user.
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
        assert!(
            message.contains("can be changed by every user"),
            "{message}"
        );
        fs::set_permissions(&ours, Permissions::from_mode(0o1777)).unwrap();
        directory(&ours.join("inner")).unwrap();
        // The formerly open directory is closed to all others now.
        fs::set_permissions(&ours, Permissions::from_mode(0o777)).unwrap();
        directory(&ours).unwrap();
        assert_eq!(fs::metadata(&ours).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_others_could_change_is_not_trusted() {
        let temporary = tempfile::tempdir().unwrap();
        let ours = temporary.path().join("ours");
        fs::create_dir(&ours).unwrap();
        let file = ours.join("file");
        let mode =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let refused = |path: &Path, words: &str| {
            let message = trusted(path).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        };
        fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        trusted(&file).unwrap();
        trusted(&ours.join("../ours/./file")).unwrap();
        for (path, modes) in [(&file, [0o646, 0o664]), (&ours, [0o777, 0o775])] {
            let before = fs::metadata(path).unwrap().mode();
            for open in modes {
                mode(path, open);
                refused(&file, "can be changed by other users");
            }
            mode(path, before);
        }
        mode(&ours, 0o1777);
        trusted(&file).unwrap();
        refused(&ours, "can be changed by other users");
        mode(&ours, 0o755);
        chown(&file, Some(NOBODY), None).unwrap();
        refused(&file, "belongs to the user 65534");
        chown(&file, Some(ROOT), None).unwrap();

        // Another user may later change the target of a symbolic link, also of a link within the
        // target of another link.
        let (theirs, link) = (temporary.path().join("theirs"), ours.join("link"));
        fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::symlink(&file, theirs.join("second")).unwrap();
        std::os::unix::fs::symlink("../theirs/second", &link).unwrap();
        trusted(&link).unwrap();
        chown(&theirs, Some(NOBODY), None).unwrap();
        refused(&link, "belongs to the user 65534");
        std::os::unix::fs::symlink("loop", ours.join("loop")).unwrap();
        assert_eq!(
            trusted(&ours.join("loop")).unwrap_err().raw_os_error(),
            Some(libc::ELOOP)
        );
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
        holder.args(["--no-fork", "--shared"]).arg(&path).args([
            "sh",
            "-c",
            "echo has it; exec sleep 60",
        ]);
        let mut holder = holder
            .uid(NOBODY)
            .gid(NOBODY)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0; 7]).unwrap();
        assert_eq!(try_lock(&file).unwrap(), Lock::Foreign);
        holder.kill().unwrap();
        holder.wait().unwrap();
    }
}
