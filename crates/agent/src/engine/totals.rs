//! The sums of windows, on disk: a cumulative metric goes on after a restart where it was.
//!
//! A sum is written with the number of the last window in it, before that window's map is cleared. After a
//! crash in between, the map is found uncleared and its window in the sum: it is cleared and not added again.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use twinprobe_ebpf_common::{RawTable, TableLayout};

/// Of files of this form.
const MAGIC: &[u8; 8] = b"tpsums01";
const DIGEST: usize = 32;

/// Where the sums of one probe are.
#[derive(Debug)]
pub(super) struct Totals(PathBuf);

/// What is known of a sum.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Saved {
    /// The last window in it.
    pub epoch: u64,
    pub table: RawTable,
}

impl Totals {
    pub const fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Replaces what was saved of the metric that is called `name` here.
    pub fn save(&self, name: &str, layout: &TableLayout, epoch: u64, table: &RawTable) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.0)?;
        let mut digest = Sha256::new();
        let head = [epoch, table.keys.len() as u64, table.values.len() as u64].map(u64::to_le_bytes);
        for part in [&MAGIC[..], &fingerprint(layout), head.as_flattened(), &table.keys, &table.values] {
            digest.update(part);
            file.write_all(part)?;
        }
        file.write_all(&digest.finalize())?;
        // It has to outlive this process, not the machine: the maps do not either.
        file.persist(self.0.join(name)).map(drop).map_err(|error| error.error)
    }

    /// Removes one. What is left by a failure says of which window it is.
    pub fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.0.join(name));
    }

    /// Removes all but those that are called `names`.
    pub fn retain(&self, names: &[String]) -> io::Result<()> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !names.iter().any(|name| entry.file_name() == name.as_str()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// `None` if nothing was saved. Values of another layout are an error.
    pub fn load(&self, name: &str, layout: &TableLayout) -> io::Result<Option<Saved>> {
        let bytes = match fs::read(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        parse(&bytes, layout).map(Some).ok_or_else(|| io::Error::other("it is damaged, or of other values"))
    }
}

fn parse(bytes: &[u8], layout: &TableLayout) -> Option<Saved> {
    let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST)?)?;
    if *Sha256::digest(content) != *digest {
        return None;
    }
    let content = content.strip_prefix(MAGIC)?.strip_prefix(&fingerprint(layout)[..])?;
    let (head, rows) = content.split_at_checked(24)?;
    let number = |index: usize| Some(u64::from_le_bytes(head[8 * index..][..8].try_into().ok()?));
    let (keys, values) = rows.split_at_checked(usize::try_from(number(1)?).ok()?)?;
    let whole = values.len() as u64 == number(2)?;
    let table = RawTable { keys: keys.to_vec(), values: values.to_vec(), inner: Vec::new() };
    whole.then_some(Saved { epoch: number(0)?, table })
}

/// Of what the bytes mean.
fn fingerprint(layout: &TableLayout) -> [u8; DIGEST] {
    Sha256::digest(format!("{layout:?}")).into()
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{Layout, MapKind};

    use super::*;

    fn layout(value: usize) -> TableLayout {
        let (key, value) = (Layout::unsigned(4), Layout::unsigned(value));
        TableLayout { kind: MapKind::Hash, key, value, slots: 1, inner: None }
    }

    #[test]
    fn what_was_saved_is_loaded_unless_a_byte_differs() {
        let directory = tempfile::tempdir().unwrap();
        let totals = Totals::new(directory.path().join("p"));
        assert_eq!(totals.load("ingress:m", &layout(8)).unwrap(), None);
        let table = RawTable { keys: vec![1, 0, 0, 0], values: vec![7; 8], inner: Vec::new() };
        totals.save("ingress:m", &layout(8), 3, &table).unwrap();
        assert_eq!(totals.load("ingress:m", &layout(8)).unwrap(), Some(Saved { epoch: 3, table }));
        assert!(totals.load("ingress:m", &layout(4)).is_err());
        let path = directory.path().join("p/ingress:m");
        let whole = fs::read(&path).unwrap();
        for index in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[index] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(totals.load("ingress:m", &layout(8)).is_err(), "byte {index}");
            fs::write(&path, &whole[..index]).unwrap();
            assert!(totals.load("ingress:m", &layout(8)).is_err(), "{index} bytes");
        }
    }
}
