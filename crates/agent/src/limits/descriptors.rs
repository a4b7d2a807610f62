//! The file descriptors of the daemon. Each map, program, attachment, connection and file needs a
//! descriptor. Probes leave some descriptors to connections and files.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// The directory that contains a link for each open descriptor. Since Linux 6.2 the size of the
/// directory is the number of descriptors.
const OPEN: &str = "/proc/self/fd";
/// The part of the descriptors that probes leave to connections and files, and the largest number
/// of these.
const RESERVE_PART: u64 = 4;
const RESERVE: u64 = 4096;
/// The number of descriptors that a probe needs in addition to its maps and programs: for some
/// attachments, journals and rings.
const BESIDE: u64 = 16;

/// The number of open descriptors, and the limit; `None` if there is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    open: u64,
    limit: Option<u64>,
}

impl Descriptors {
    pub fn now() -> Self {
        let size = fs::metadata(OPEN).map_or(0, |directory| directory.len());
        let count = || fs::read_dir(OPEN).map_or(0, |entries| entries.count() as u64);
        Self {
            open: if size > 0 { size } else { count() },
            limit: getrlimit(Resource::Nofile).current,
        }
    }

    /// Returns the reason to refuse a probe that needs `needed` descriptors; `None` if there are
    /// enough. `promised` is the number for all probes, some of which may be loading.
    pub fn refusal(self, needed: u64, promised: u64) -> Option<String> {
        let limit = self.limit?;
        let reserve = (limit / RESERVE_PART).min(RESERVE);
        let (needed, open) = (needed.saturating_add(BESIDE), self.open.max(promised));
        (needed.saturating_add(open) > limit - reserve).then(|| {
            format!(
                "the probe takes {needed} descriptors, and {open} are open; the daemon may have {limit} (LimitNOFILE=, ulimit \
                 -n), of which {reserve} are kept for connections and files: raise the limit, or remove a probe that is not needed"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_leave_descriptors_to_others() {
        let of = |open, limit| Descriptors { open, limit };
        assert_eq!(of(100, Some(400)).refusal(200 - BESIDE, 0), None);
        for refused in [
            of(101, Some(400)).refusal(200 - BESIDE, 0),
            of(0, Some(400)).refusal(200 - BESIDE, 101),
            of(0, Some(1 << 20)).refusal((1 << 20) - RESERVE, 0),
            of(0, Some(0)).refusal(u64::MAX, u64::MAX),
        ] {
            assert!(refused.unwrap().contains("LimitNOFILE="));
        }
        assert_eq!(of(u64::MAX, None).refusal(1, 1), None);
        assert_eq!(
            of(0, Some(1 << 20)).refusal((1 << 20) - RESERVE - BESIDE, 0),
            None
        );
    }

    #[test]
    fn what_is_open_is_counted() {
        let before = Descriptors::now().open;
        let files: Vec<_> = (0..300).map(|_| fs::File::open(OPEN).unwrap()).collect();
        // Other tests of this process also open and close some.
        assert!(Descriptors::now().open > before + 200, "{before}");
        drop(files);
    }
}
