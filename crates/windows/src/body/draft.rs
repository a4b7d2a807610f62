//! The bodies that are being written. Small bodies go into the store with the change that names
//! them. Large bodies are files: the writer syncs a file before the change that names it, and
//! removes the file after the change that forgets it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use crate::body::content::Content;
use crate::body::verified::VerifiedBodies;

/// The largest body that is in the store itself, in bytes: the store writes its content twice.
pub const LARGEST: usize = 64 * 1024;

/// The directory of large bodies, and the numbers of all bodies.
#[derive(Debug)]
pub struct Bodies {
    path: PathBuf,
    next: AtomicI64,
    /// The files whose digest was compared with their content.
    pub verified: VerifiedBodies,
}

/// A body that is being written.
#[derive(Debug)]
pub struct BodyDraft {
    pub id: i64,
    path: PathBuf,
    content: Vec<u8>,
    /// The file of a body that is too large for the store. Dropping the draft removes it.
    file: Option<UnnamedBody>,
    /// The number of bytes up to which the body is held in memory.
    limit: usize,
}

/// The file of a body that no change of the store names yet. Dropping it removes the file.
#[derive(Debug)]
pub struct UnnamedBody {
    file: File,
    path: PathBuf,
    is_named: bool,
}

/// A body that is on disk, or will be there together with the change that names it.
#[derive(Debug)]
pub struct Body {
    pub id: i64,
    pub bytes: u64,
    /// The content; `None` if the body is a file.
    pub content: Option<Vec<u8>>,
    file: Option<UnnamedBody>,
}

impl Bodies {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            next: AtomicI64::new(1),
            verified: VerifiedBodies::default(),
        }
    }

    /// Makes all numbers of later bodies larger than `id`.
    pub fn skip(&self, id: i64) {
        self.next.fetch_max(id.saturating_add(1), Ordering::Relaxed);
    }

    /// Begins a body with a new number.
    pub fn draft(&self) -> BodyDraft {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        BodyDraft {
            id,
            path: self.file(id),
            content: Vec::new(),
            file: None,
            limit: LARGEST,
        }
    }

    /// Begins a body that is for one reader only. It gets no file if nothing may be written.
    pub fn copy(&self, may_write: bool) -> BodyDraft {
        BodyDraft {
            limit: if may_write { LARGEST } else { usize::MAX },
            ..self.draft()
        }
    }

    fn file(&self, id: i64) -> PathBuf {
        self.path.join(id.to_string())
    }

    pub fn open(&self, id: i64) -> io::Result<File> {
        File::open(self.file(id))
    }

    /// Gives an existing file the name of body `id` as well, durably.
    pub fn link(&self, id: i64, file: &Path) -> io::Result<()> {
        let path = self.file(id);
        // The remains of an earlier attempt are not used.
        let _ = fs::remove_file(&path);
        fs::hard_link(file, &path).or_else(|error| match self.path.parent() {
            Some(parent) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&self.path)?;
                sync(parent)?;
                fs::hard_link(file, &path)
            }
            _ => Err(error),
        })?;
        File::open(&path)?.sync_all()?;
        sync(&self.path)
    }

    /// Removes the file of a body that was forgotten. A failure is logged; the next start removes
    /// the file.
    pub fn remove(&self, id: i64) {
        self.verified.forget(id);
        let path = self.file(id);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "the file of a window could not be removed");
        }
    }

    /// Lists the files. Call this before anything is written.
    pub fn found(&self) -> io::Result<BTreeSet<i64>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            entries => entries?,
        };
        let number = |entry: io::Result<fs::DirEntry>| {
            Ok(entry?.file_name().to_str().and_then(|n| n.parse().ok()))
        };
        entries
            .filter_map(|entry| number(entry).transpose())
            .collect()
    }
}

impl BodyDraft {
    /// Returns the body to be read. Its file loses its name, so that it takes room only until its
    /// readers have ended.
    pub fn into_content(mut self) -> io::Result<Content> {
        let Some(mut written) = self.file.take() else {
            return Ok(Content::Bytes(self.content));
        };
        written.file.write_all(&self.content)?;
        Ok(Content::File(written.file.try_clone()?))
    }

    /// Makes the body durable, or ready for the change that names it.
    pub fn finish(mut self) -> io::Result<Body> {
        let Some(file) = self.file.as_mut() else {
            return Ok(Body {
                id: self.id,
                bytes: self.content.len() as u64,
                content: Some(self.content),
                file: None,
            });
        };
        file.file.write_all(&self.content)?;
        file.file.sync_all()?;
        self.path.parent().map_or(Ok(()), sync)?;
        let bytes = file.file.metadata()?.len();
        Ok(Body {
            id: self.id,
            bytes,
            content: None,
            file: self.file,
        })
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(create(&self.path)?);
        }
        if let Some(written) = self.file.as_mut() {
            written.file.write_all(&self.content)?;
            self.content.clear();
        }
        Ok(())
    }
}

impl Write for BodyDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.content.len().saturating_add(bytes.len()) > self.limit {
            self.spill()?;
        }
        if bytes.len() > self.limit
            && let Some(written) = self.file.as_mut()
        {
            return written.file.write(bytes);
        }
        self.content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Body {
    /// Call this once the store names the body: the file stays.
    pub fn named(mut self) {
        if let Some(written) = self.file.as_mut() {
            written.is_named = true;
        }
    }
}

impl Drop for UnnamedBody {
    fn drop(&mut self) {
        if !self.is_named {
            // The next start removes the file if its removal fails.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn create(path: &Path) -> io::Result<UnnamedBody> {
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
    };
    let file = open().or_else(|error| {
        let Some(parent) = path
            .parent()
            .filter(|_| error.kind() == io::ErrorKind::NotFound)
        else {
            return Err(error);
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
        parent.parent().map_or(Ok(()), sync)?;
        open()
    })?;
    Ok(UnnamedBody {
        file,
        path: path.to_owned(),
        is_named: false,
    })
}

/// Syncs a directory, so that its names are durable.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
