//! The objects of the last compiled sources. A source is compiled once while the headers that clang
//! has read for the source are unchanged.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lru::LruCache;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::headers;
use crate::object::CompiledObject;
use twinprobe_ebpf_common::unit::Unit;

/// The number of objects that are kept, and the length in bytes above which an object is not kept:
/// 4 MiB together.
const OBJECTS: NonZeroUsize = NonZeroUsize::new(32).unwrap();
const LONGEST: usize = 128 << 10;
/// The argument by which clang lists the headers among its messages: a line for each, with a dot
/// for each level.
pub const LIST_HEADERS: &str = "-H";

/// Objects by their sources and options.
pub struct ObjectCache(Mutex<LruCache<ObjectKey, KnownObject>>);

/// A digest of everything that determines an object, except for the headers of the host.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey([u8; 32]);

struct KnownObject {
    object: CompiledObject,
    read: Vec<PathStamp>,
}

/// A file or directory, and the properties that reveal a change.
#[derive(PartialEq, Eq)]
struct PathStamp {
    path: PathBuf,
    /// Inode, size, and seconds and nanoseconds of the last change; `None` without a file.
    is: Option<[i128; 4]>,
}

impl Default for ObjectCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(OBJECTS)))
    }
}

impl fmt::Debug for ObjectCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Known").field(&self.0.lock().len()).finish()
    }
}

impl ObjectKey {
    pub fn new(clang: &Path, arguments: &[OsString], unit: &Unit<'_>) -> Self {
        let mut digest = Sha256::new();
        let parts = [
            clang.as_os_str().as_bytes(),
            unit.field.as_bytes(),
            unit.source.as_bytes(),
        ];
        let files = unit
            .files
            .iter()
            .flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        digest.update(unit.files.len().to_ne_bytes());
        let arguments = arguments.iter().map(|argument| argument.as_bytes());
        for part in parts.into_iter().chain(files).chain(arguments) {
            digest.update(part.len().to_ne_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }
}

/// Takes the list of the headers out of clang's messages. The daemon's own headers never change and
/// are left out.
pub fn take_headers(log: &str) -> (String, BTreeSet<PathBuf>) {
    let (mut messages, mut headers) = (String::new(), BTreeSet::new());
    for line in log.split_inclusive('\n') {
        match header(line.trim_end()) {
            Some(name) if headers::is_own(name) => {}
            Some(name) => _ = headers.insert(PathBuf::from(name)),
            None => messages.push_str(line),
        }
    }
    (messages, headers)
}

/// Returns the header that a line of the list names.
fn header(line: &str) -> Option<&str> {
    let name = line.trim_start_matches('.');
    name.strip_prefix(' ')
        .filter(|path| name.len() < line.len() && path.starts_with('/'))
}

impl ObjectCache {
    /// Returns the object if all its inputs are unchanged.
    pub fn get(&self, key: &ObjectKey) -> Option<CompiledObject> {
        let mut known = self.0.lock();
        let entry = known.get(key)?;
        if entry
            .read
            .iter()
            .any(|stamp| *stamp != PathStamp::of(stamp.path.clone()))
        {
            known.pop(key);
            return None;
        }
        Some(CompiledObject {
            reused: true,
            ..entry.object.clone()
        })
    }

    /// Keeps an object that `clang` has made from these headers.
    pub fn keep(
        &self,
        key: ObjectKey,
        object: &CompiledObject,
        clang: &Path,
        headers: BTreeSet<PathBuf>,
    ) {
        if object.elf.len() > LONGEST {
            return;
        }
        // A new header may hide a header of the same name that clang would find later.
        let directories = headers
            .iter()
            .filter_map(|header| header.parent().map(Path::to_owned));
        let directories: BTreeSet<PathBuf> = directories.collect();
        let read = headers
            .into_iter()
            .chain(directories)
            .chain([clang.to_owned()]);
        let entry = KnownObject {
            object: object.clone(),
            read: read.map(PathStamp::of).collect(),
        };
        self.0.lock().put(key, entry);
    }
}

impl PathStamp {
    fn of(path: PathBuf) -> Self {
        let is = fs::metadata(&path).ok();
        let is = is.map(|is| {
            [
                is.ino().into(),
                is.size().into(),
                is.mtime().into(),
                is.mtime_nsec().into(),
            ]
        });
        Self { path, is }
    }
}
