//! The bodies whose digest was compared with their content. Charts read the files of large bodies
//! again and again, and computing the digest takes most of that time. As long as a file is
//! unchanged, its digest is not computed again.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::body::content::Content;

/// The most bodies that are remembered. They take less than a MiB of memory.
const MOST: usize = 8_192;
/// A file whose last change is older than this certainly gets another time with its next change:
/// clocks of file systems are coarse.
const SETTLED: Duration = Duration::from_secs(1);

/// The properties that show that a file is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    device: u64,
    inode: u64,
    length: u64,
    /// The time of the last change of content, length, owner or links, in seconds and nanoseconds
    /// since 1970.
    changed: (i64, i64),
}

/// The bodies whose digest was compared, by their numbers.
#[derive(Debug, Default)]
pub struct VerifiedBodies(Mutex<HashMap<i64, FileState>>);

impl FileState {
    /// The state of the file of a body; `None` if the body is not a file.
    pub fn of(content: &Content) -> Option<Self> {
        let Content::File(file) = content else {
            return None;
        };
        let found = file.metadata().ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Tells whether the file's last change is so old that a further change would give the file
    /// another time.
    fn is_settled(&self) -> bool {
        let (Ok(seconds), Ok(nanoseconds)) =
            (u64::try_from(self.changed.0), u32::try_from(self.changed.1))
        else {
            return false;
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        now.checked_sub(Duration::new(seconds, nanoseconds))
            .is_some_and(|age| age > SETTLED)
    }
}

impl VerifiedBodies {
    /// Tells whether the digest of the body was compared while its file was in this state.
    pub fn knows(&self, id: i64, state: FileState) -> bool {
        self.0.lock().get(&id) == Some(&state)
    }

    /// Notes that the digest fits the content. `state` is the state of the file before the reading.
    pub fn note(&self, id: i64, state: FileState) {
        if !state.is_settled() {
            return;
        }
        let mut known = self.0.lock();
        // Bodies have rising numbers, so the oldest body has the smallest number.
        if known.len() >= MOST
            && let Some(oldest) = known.keys().min().copied()
        {
            known.remove(&oldest);
        }
        known.insert(id, state);
    }

    /// Tells whether the digest of this body was compared.
    #[cfg(test)]
    pub fn has(&self, id: i64) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// Forgets a body that was removed.
    pub fn forget(&self, id: i64) {
        self.0.lock().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(changed: Duration) -> FileState {
        let changed = (
            changed.as_secs().cast_signed(),
            i64::from(changed.subsec_nanos()),
        );
        FileState {
            device: 1,
            inode: 2,
            length: 3,
            changed,
        }
    }

    #[test]
    fn a_file_is_known_as_long_as_it_stays() {
        let bodies = VerifiedBodies::default();
        let old = state(Duration::from_secs(5));
        bodies.note(7, old);
        assert!(bodies.knows(7, old));
        assert!(!bodies.knows(7, FileState { length: 4, ..old }) && !bodies.knows(8, old));
        bodies.forget(7);
        assert!(!bodies.knows(7, old));
    }

    #[test]
    fn a_file_that_was_changed_just_now_is_not_known() {
        let bodies = VerifiedBodies::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        for changed in [now, now + Duration::from_secs(100)] {
            bodies.note(7, state(changed));
            assert!(!bodies.knows(7, state(changed)), "{changed:?}");
        }
    }

    #[test]
    fn no_more_bodies_are_known_than_there_is_room_for() {
        let bodies = VerifiedBodies::default();
        let old = state(Duration::from_secs(5));
        (0..=MOST as i64).for_each(|id| bodies.note(id, old));
        assert_eq!(bodies.0.lock().len(), MOST);
        assert!(!bodies.knows(0, old) && bodies.knows(1, old));
    }
}
