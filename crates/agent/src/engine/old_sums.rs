//! The sums of versions that wrote windows of format 1. Each sum is in a file of its own, `totals/PROBE/DIRECTION:MAP`,
//! with the number of the last window in the sum. A sum is taken over once; a file that can't be read stays where it
//! is.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use sha2::{Digest as _, Sha256};
use twinprobe_ebpf_common::{RawTable, TableLayout};
use twinprobe_exporter::Metric;
use twinprobe_windows::{Part, PartContent};

use crate::config::Direction;

const MAGIC: &[u8; 8] = b"tpsums01";
const DIGEST: usize = 32;

/// The old sums of one probe.
#[derive(Debug)]
pub(super) struct OldSums {
    directory: PathBuf,
    taken: BTreeSet<PathBuf>,
}

impl OldSums {
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory, taken: BTreeSet::new() }
    }

    /// Returns what the files hold of a metric, without open rows that are in window `newest`, the newest one; `None`
    /// if there is nothing. `adopted`: a window after `newest` may still be in the maps.
    pub fn parts(
        &mut self,
        direction: Direction,
        metric: &Metric,
        newest: u64,
        adopted: bool,
    ) -> Option<Vec<Part>> {
        let name = format!("{direction}:{}", metric.map);
        let mut parts = Vec::new();
        for (content, name) in [(PartContent::Sum, name.clone()), (PartContent::Open, format!("open:{name}"))]
        {
            let path = self.directory.join(name);
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes.map_err(|error| error.to_string()),
            };
            let saved = bytes.and_then(|bytes| {
                parse(&bytes, &metric.layout).ok_or_else(|| "it is damaged, or of other values".to_owned())
            });
            match saved {
                Err(reason) => {
                    tracing::error!(path = %path.display(), reason, "a sum can't be taken over and stays where it is");
                }
                Ok(saved) if content == PartContent::Open && saved.epoch <= newest => {}
                Ok(Saved { epoch, layout, rows }) => {
                    // A deployment that does not go on with the window numbers uses this number for another window.
                    let through = if adopted { epoch } else { newest };
                    parts.push(Part {
                        direction,
                        map: metric.map.clone(),
                        content,
                        through,
                        layout: Arc::new(layout),
                        rows,
                        ages: Vec::new(),
                        dropped: 0,
                    });
                    self.taken.insert(path);
                }
            }
        }
        (!parts.is_empty()).then_some(parts)
    }

    /// Removes the files that were taken over: a window holds their content now.
    pub fn forget(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if taken.is_empty() {
            return;
        }
        for path in taken {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a sum that was taken over can't be removed");
            }
        }
        // The directory stays if it holds a file that could not be read.
        let _ = fs::remove_dir(&self.directory);
    }
}

struct Saved {
    /// The last window in the sum; for open rows, the open window.
    epoch: u64,
    layout: TableLayout,
    rows: RawTable,
}

fn parse(bytes: &[u8], layout: &TableLayout) -> Option<Saved> {
    let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST)?)?;
    if *Sha256::digest(content) != *digest {
        return None;
    }
    let (fingerprint, content) = content.strip_prefix(MAGIC)?.split_at_checked(DIGEST)?;
    let (head, rows) = content.split_at_checked(24)?;
    let number = |index: usize| Some(u64::from_le_bytes(head[8 * index..][..8].try_into().ok()?));
    let (keys, values) = rows.split_at_checked(usize::try_from(number(1)?).ok()?)?;
    if values.len() as u64 != number(2)? {
        return None;
    }
    // The number of CPUs may have been another one when the file was written.
    let per_row = if layout.kind.has_keys() { keys.len().checked_div(layout.key.size)? } else { 1 };
    let slots = values.len().checked_div(per_row * layout.slot_stride()).unwrap_or(layout.slots);
    let slots = if layout.kind.is_percpu() { slots } else { layout.slots };
    let layout = TableLayout { slots, ..layout.clone() };
    let known = Sha256::digest(format!("{layout:?}"));
    let rows = RawTable { keys: keys.to_vec(), values: values.to_vec(), inner: Vec::new() };
    (*known == *fingerprint).then_some(Saved { epoch: number(0)?, layout, rows })
}

#[cfg(test)]
mod tests {
    use twinprobe_windows::Windows;

    use super::*;

    /// The golden files are from a daemon that kept sums in such files, after window 2: 7 packets.
    #[test]
    fn sums_of_the_first_format_are_read_once() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../windows/src/windows/tests/golden");
        let directory = tempfile::tempdir().unwrap();
        let (windows, sums) = (directory.path().join("windows"), directory.path().join("sums"));
        [&windows, &sums].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        fs::copy(format!("{golden}/window-1"), windows.join("2.window")).unwrap();
        for map in ["in_array", "in_percpu_array"] {
            fs::copy(format!("{golden}/sum-0-{map}"), sums.join(format!("ingress:{map}"))).unwrap();
        }
        let metrics = Windows::open(windows).get(2).unwrap().open().unwrap().metrics();
        let mut old = OldSums::new(sums.clone());
        for index in [0, 2] {
            let metric = &metrics[index].1;
            let parts = old.parts(Direction::Ingress, metric, 2, true).unwrap();
            let [Part { content: PartContent::Sum, through: 2, layout, rows, .. }] = &parts[..] else {
                panic!("{parts:?}");
            };
            assert_eq!(layout, &metric.layout);
            let slots = rows.values.chunks_exact(layout.slot_stride());
            let first = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
            assert_eq!(slots.map(first).sum::<u64>(), 7, "packets of all keys and CPUs");
        }
        // The file of another layout stays.
        let other = Metric { map: "in_percpu_array".into(), ..Metric::clone(&metrics[0].1) };
        let mut another = OldSums::new(sums.clone());
        assert_eq!(another.parts(Direction::Ingress, &other, 2, true), None);
        another.forget();
        assert!(sums.join("ingress:in_percpu_array").exists());
        old.forget();
        assert!(!sums.exists());
    }
}
