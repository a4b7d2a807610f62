//! The changes of directories, as inotify reports them. A volume of Kubernetes changes by one
//! rename of the symbolic link `..data`, through which all its files are found.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// The time without changes after which a change counts as finished: an editor makes several
/// changes, and copying a file takes some time.
const QUIET: Duration = Duration::from_millis(300);
/// The time after which the caller looks even without a reported change: somebody may have
/// exchanged a directory, or its file system may report nothing.
const LOOK: Duration = Duration::from_secs(10);

/// A signal that files in some directories may have changed.
#[derive(Debug)]
pub struct FolderChanges {
    directories: Vec<PathBuf>,
    /// The watcher; `None` if inotify can't be used.
    watcher: Option<RecommendedWatcher>,
    events: mpsc::Receiver<()>,
}

impl FolderChanges {
    /// Watches these directories, but not the directories in them.
    pub fn of_directories(directories: Vec<PathBuf>) -> Self {
        // A single waiting event is enough to announce all changes.
        let (sender, events) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| is_change(event.kind)) {
                let _ = sender.try_send(());
            }
        });
        let watcher = watcher.inspect_err(|error| {
            let seconds = LOOK.as_secs();
            tracing::warn!(%error, "inotify can't be used; the daemon sees changes of files within \
                {seconds} s");
        });
        let mut changes = Self {
            directories,
            watcher: watcher.ok(),
            events,
        };
        changes.watch();
        changes
    }

    /// Watches the directories that are at the paths at this moment.
    fn watch(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        for directory in &self.directories {
            // A directory that does not exist now is watched once it exists.
            let _ = watcher.unwatch(directory);
            let _ = watcher.watch(directory, RecursiveMode::NonRecursive);
        }
    }

    /// Waits for a change and then until changes stop, or until the longest wait has passed.
    pub async fn next(&mut self) {
        if tokio::time::timeout(LOOK, self.events.recv())
            .await
            .is_ok_and(|event| event.is_some())
        {
            while tokio::time::timeout(QUIET, self.events.recv())
                .await
                .is_ok_and(|event| event.is_some())
            {}
        }
        self.watch();
    }
}

/// Files that are read again when they change.
#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// The files that were at the paths at the last look.
    stamps: Vec<Option<FileStamp>>,
    changes: FolderChanges,
}

/// The identity of a file, its length, and the time of its last change.
type FileStamp = (u64, u64, u64, i64, i64);

impl WatchedFiles {
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let changes = FolderChanges::of_directories(parents(&paths));
        Self {
            stamps: stamps(&paths),
            paths,
            changes,
        }
    }

    /// Waits until another file is at a path, or a file has other content.
    pub async fn changed(&mut self) {
        loop {
            self.changes.next().await;
            let stamps = stamps(&self.paths);
            if stamps != self.stamps {
                self.stamps = stamps;
                return;
            }
        }
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<FileStamp>> {
    let stamp = |path: &PathBuf| {
        let file = fs::metadata(path).ok()?;
        Some((
            file.dev(),
            file.ino(),
            file.len(),
            file.mtime(),
            file.mtime_nsec(),
        ))
    };
    paths.iter().map(stamp).collect()
}

/// Returns the directories that the files are in.
fn parents(files: &[PathBuf]) -> Vec<PathBuf> {
    let parent = |file: &PathBuf| match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut parents: Vec<PathBuf> = files.iter().map(parent).collect();
    parents.sort();
    parents.dedup();
    parents
}

/// Tells whether an event can change what a reader of the files sees. The reading of the files also
/// causes events.
const fn is_change(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Create(_)
            | EventKind::Modify(_)
            | EventKind::Remove(_)
    )
}
