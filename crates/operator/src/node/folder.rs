//! The assignments of a node, on its disk. With them, the node continues while the API server is
//! away, and later still recognizes its own probes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use twinprobe_api::{AssignmentSpec, NodeReport, RevisionKind, RevisionSpec};
use twinprobe_state_files::{lasting, private};

const LABELS: &str = "labels.json";
const PROBES: &str = "probes";

/// A probe that the node must run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldProbe {
    /// The identity of the assignment's object: a new object with an old name has another identity.
    pub uid: Option<String>,
    /// The assignment; without it, the probe must be removed.
    pub assignment: Option<AssignmentSpec>,
    /// The revisions that the node has fetched and may need again. A probe with one of these
    /// revisions is the node's own probe.
    pub revisions: BTreeMap<String, RevisionSpec>,
    /// The last report that the API server has taken.
    pub reported: Option<NodeReport>,
    /// True from before the first report until the report is deleted.
    pub has_report: bool,
}

impl HeldProbe {
    pub fn kind(&self) -> RevisionKind {
        let told = self.assignment.as_ref().map(|assignment| assignment.kind);
        told.or_else(|| self.revisions.values().next().map(|revision| revision.kind))
            .unwrap_or_default()
    }
}

/// The folder with a file for each probe, and the labels of the node.
#[derive(Debug)]
pub struct NodeFolder {
    root: PathBuf,
}

impl NodeFolder {
    /// Opens the folder. Makes it if it is missing.
    pub fn open(root: &Path) -> anyhow::Result<Self> {
        let probes = root.join(PROBES);
        fs::create_dir_all(root).with_context(|| root.display().to_string())?;
        private::directory(&probes).with_context(|| probes.display().to_string())?;
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// Reads the probes. A file that can't be read is an error, because its probe may be running.
    pub fn probes(&self) -> anyhow::Result<BTreeMap<String, HeldProbe>> {
        let folder = self.root.join(PROBES);
        let mut probes = BTreeMap::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let Some(name) = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix(".json"))
            else {
                continue;
            };
            let held = read(&path)?.unwrap_or_default();
            probes.insert(name.to_owned(), held);
        }
        Ok(probes)
    }

    /// Writes the record of a probe to disk, with a sync.
    pub fn keep(&self, name: &str, held: &HeldProbe) -> io::Result<()> {
        write(&self.root.join(PROBES), &format!("{name}.json"), held)
    }

    pub fn forget(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.root.join(PROBES).join(format!("{name}.json"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => lasting::sync(&self.root.join(PROBES)),
        }
    }

    /// Reads the labels that the node had when the API server was asked last.
    pub fn labels(&self) -> anyhow::Result<Option<BTreeMap<String, String>>> {
        read(&self.root.join(LABELS))
    }

    pub fn keep_labels(&self, labels: &BTreeMap<String, String>) -> io::Result<()> {
        write(&self.root, LABELS, labels)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let value = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    Ok(Some(value))
}

fn write(folder: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.as_file().sync_all()?;
    file.persist(folder.join(name))?;
    lasting::sync(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = || NodeFolder::open(&folder.path().join("state")).unwrap();
        let held = HeldProbe {
            uid: Some("1".to_owned()),
            ..HeldProbe::default()
        };
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        assert_eq!(
            (open().probes().unwrap(), open().labels().unwrap()),
            (BTreeMap::new(), None)
        );
        open().keep("flows.2", &held).unwrap();
        open().keep_labels(&labels).unwrap();
        assert_eq!(
            open().probes().unwrap(),
            BTreeMap::from([("flows.2".to_owned(), held)])
        );
        assert_eq!(open().labels().unwrap(), Some(labels));
        open().forget("flows.2").unwrap();
        open().forget("flows.2").unwrap();
        assert_eq!(open().probes().unwrap(), BTreeMap::new());
    }
}
