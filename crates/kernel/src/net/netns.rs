//! Network namespaces by their paths, and work inside of them. The kind of a namespace is queried
//! through libc, because rustix has no such call.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{io, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::net::patience;

const OWN: &str = "/proc/self/ns/net";
/// The type of the file system that contains the files of namespaces (`linux/magic.h`).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;
/// The directory where `ip netns` keeps the namespaces that have a name.
const NAMED: &str = "/run/netns";

/// A network namespace. Each clone keeps the namespace and its interfaces alive, so drop all clones
/// once the namespace is no longer at its path.
#[derive(Clone, Debug)]
pub struct Netns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    id: u64,
    own: bool,
    /// The path at which the namespace was found; `None` for the daemon's own namespace.
    path: Option<PathBuf>,
}

impl Netns {
    /// Returns the daemon's own namespace.
    pub fn own() -> io::Result<Self> {
        let file = File::open(OWN)?;
        let id = file.metadata()?.ino();
        Ok(Self(Arc::new(Inner {
            file,
            id,
            own: true,
            path: None,
        })))
    }

    /// Opens the namespace that is at `path` now. The error's kind says what is wrong:
    /// [`io::ErrorKind::NotFound`] if nothing is at the path, [`io::ErrorKind::InvalidInput`] if
    /// the file at the path is not a network namespace. These two kinds mean that the namespace is
    /// not there; any other error means that the answer is unknown.
    pub fn open(path: &Path) -> io::Result<Self> {
        patience::ask(path, Self::open_now)
    }

    fn open_now(path: &Path) -> io::Result<Self> {
        // The text is the same for any content of the path: the client must not learn which files
        // exist.
        let because = |kind: io::ErrorKind| {
            let path = path.display();
            io::Error::new(
                kind,
                format!("there is no network namespace {path} that can be opened"),
            )
        };
        let failed = |error: io::Error| {
            tracing::debug!(path = %path.display(), %error, "a network namespace can't be opened");
            because(if is_missing(&error) {
                io::ErrorKind::NotFound
            } else {
                error.kind()
            })
        };
        // A request names the path. O_PATH only finds the file: opening a device or a FIFO has
        // effects of its own.
        let found = File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path)
            .map_err(failed)?;
        let other = || because(io::ErrorKind::InvalidInput);
        if rustix::fs::fstatfs(&found)?.f_type != NSFS_MAGIC {
            return Err(other());
        }
        // The descriptor that was checked is opened: the path may lead elsewhere by now.
        let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(failed)?;
        if !is_netns(file.as_fd()) {
            return Err(other());
        }
        let id = file.metadata()?.ino();
        let own = id == std::fs::metadata(OWN)?.ino();
        Ok(Self(Arc::new(Inner {
            file,
            id,
            own,
            path: Some(path.to_owned()),
        })))
    }

    /// Tells whether an error of [`Self::open`] means that the namespace is not there.
    pub fn is_not_there(error: &io::Error) -> bool {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
        )
    }

    /// Finds the namespace with this number, if it has a name or a process that can be seen here.
    pub fn find(id: u64) -> Option<Self> {
        let entries =
            |directory: &str| std::fs::read_dir(directory).into_iter().flatten().flatten();
        let has_id = |metadata: std::fs::Metadata| metadata.ino() == id;
        // A named namespace is a mount in this directory. A symbolic link is not followed, because
        // its target may be on a file system that does not answer.
        let named = entries(NAMED).map(|entry| entry.path());
        let named = named.filter(|path| std::fs::symlink_metadata(path).is_ok_and(has_id));
        let of_processes = entries("/proc").map(|entry| entry.path().join("ns/net"));
        let of_processes = of_processes.filter(|path| std::fs::metadata(path).is_ok_and(has_id));
        named
            .chain(of_processes)
            .find_map(|path| Self::open(&path).ok().filter(|n| n.id() == id))
    }

    /// Returns the kernel's number of the namespace. Another namespace can get the same number only
    /// after all clones of this namespace were dropped.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The path where the namespace was found; `None` for the daemon's own.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Tells whether this namespace is at `path` now. Fails if the answer is unknown.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        // A file of another file system may have the same number.
        let of = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match patience::ask(path, |path| std::fs::metadata(path)) {
            Ok(there) => Ok(of(there) == of(self.0.file.metadata()?)),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs `f` inside the namespace. Fails if the thread can't enter the namespace; a panic of `f`
    /// is passed on.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        if self.0.own {
            return Ok(f());
        }
        // The work runs on a thread of its own: a shared thread would stay in the wrong namespace
        // if anything failed.
        thread::scope(|scope| {
            let inside = thread::Builder::new()
                .name("netns".to_owned())
                .spawn_scoped(scope, || {
                    move_into_link_name_space(
                        self.0.file.as_fd(),
                        Some(LinkNameSpaceType::Network),
                    )?;
                    Ok(f())
                })?;
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl PartialEq for Netns {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Netns {}

/// Tells whether the error says that nothing is at the path. For an ending process,
/// `/proc/PID/ns/net` fails with ESRCH.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error.raw_os_error() == Some(libc::ESRCH)
}

fn is_netns(file: BorrowedFd<'_>) -> bool {
    // SAFETY: the request takes no argument, and files of other kinds refuse it.
    unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_NSTYPE) == libc::CLONE_NEWNET }
}

/// Namespaces and interfaces for tests in this folder.
#[cfg(test)]
pub mod testing {
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[track_caller]
    pub fn ip(arguments: &str) {
        let output = Command::new("ip")
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "ip {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    impl super::Netns {
        pub fn is_own(&self) -> bool {
            self.0.own
        }
    }

    /// A named namespace, deleted on drop.
    pub struct Named(pub String);

    impl Named {
        pub(crate) fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let name = format!(
                "tpu-{}-{}",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            );
            ip(&format!("netns add {name}"));
            Self(name)
        }

        pub fn path(&self) -> PathBuf {
            PathBuf::from("/run/netns").join(&self.0)
        }

        /// Runs `ip` inside of the namespace.
        #[track_caller]
        pub fn ip(&self, arguments: &str) {
            ip(&format!("-n {} {arguments}", self.0));
        }

        pub fn delete(&self) {
            ip(&format!("netns del {}", self.0));
        }

        pub fn create(&self) {
            ip(&format!("netns add {}", self.0));
        }
    }

    impl Drop for Named {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Named;
    use super::*;

    fn here() -> u64 {
        std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino()
    }

    #[test]
    fn work_runs_inside_and_the_caller_stays_outside() {
        let named = Named::new();
        let (own, other) = (Netns::own().unwrap(), Netns::open(&named.path()).unwrap());
        assert!(own.is_own() && !other.is_own());
        assert_eq!(own.run(here).unwrap(), own.id());
        assert_eq!(other.run(here).unwrap(), other.id());
        assert_eq!(here(), own.id());
        assert_ne!(own, other);
        assert_eq!(Netns::open(Path::new(OWN)).unwrap(), own);
        assert!(Netns::open(Path::new(OWN)).unwrap().is_own());
    }

    #[test]
    fn a_panic_inside_is_passed_on() {
        let other = Netns::open(&Named::new().path()).unwrap();
        let outcome = std::panic::catch_unwind(|| other.run(|| panic!("inside")));
        assert_eq!(outcome.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
    }

    #[test]
    fn what_is_no_namespace_is_told_apart() {
        let error = |path: &str| Netns::open(Path::new(path)).unwrap_err();
        let said = |path: &str| format!("there is no network namespace {path} that can be opened");
        for missing in ["/run/netns/tpu-none", "/proc/0/ns/net", "/etc/hostname/x"] {
            let error = error(missing);
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
            assert_eq!(error.to_string(), said(missing));
        }
        for wrong in ["/proc/self/ns/mnt", "/proc/self/status", "/", "/dev/null"] {
            let error = error(wrong);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            assert_eq!(error.to_string(), said(wrong));
        }
    }

    /// A test opens no other file: opening a FIFO for reading lets its writer continue, and the
    /// effect of opening a device depends on its driver.
    #[test]
    fn what_is_no_namespace_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        let inotify =
            rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::NONBLOCK).unwrap();
        rustix::fs::inotify::add_watch(&inotify, &fifo, rustix::fs::inotify::WatchFlags::OPEN)
            .unwrap();
        for path in [&fifo, &link] {
            assert_eq!(
                Netns::open(path).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
        let mut events = [0; 256];
        let seen = rustix::io::read(&inotify, &mut events);
        assert_eq!(
            seen.unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "somebody has opened the FIFO"
        );
        let named = Named::new();
        let link = directory.path().join("namespace");
        std::os::unix::fs::symlink(named.path(), &link).unwrap();
        assert_eq!(
            Netns::open(&link).unwrap(),
            Netns::open(&named.path()).unwrap(),
            "a link to a namespace will do"
        );
    }

    #[test]
    fn a_path_that_is_made_anew_is_another_namespace() {
        let named = Named::new();
        let before = Netns::open(&named.path()).unwrap();
        assert!(before.is_at(&named.path()).unwrap());
        named.delete();
        assert!(!before.is_at(&named.path()).unwrap());
        named.create();
        assert!(!before.is_at(&named.path()).unwrap());
        assert_ne!(before, Netns::open(&named.path()).unwrap());
    }
}
