//! The file `pods.json`: the pods of the node as a local agent has reported them. A starting daemon
//! knows them before the agent reconnects.

use std::io;

use twinprobe_api::PodTable;
use twinprobe_faults::crash;
use twinprobe_state_files::lasting;

use crate::store::Store;
use crate::store::error::{StoreError, failed};

const FILE: &str = "pods.json";

impl Store {
    /// Reads the pods. A file that can't be read counts as empty: the agent reports the pods again.
    pub fn pods(&self) -> PodTable {
        let path = self.state_dir.join(FILE);
        let read = std::fs::read(&path);
        let parsed = read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
        parsed.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "the file of pods can't be read; the agent must report them again");
            }
            PodTable::default()
        })
    }

    /// Replaces the pods. When this returns, the new pods are on disk; after an error, the old pods
    /// are.
    pub fn keep_pods(&self, table: &PodTable) -> Result<(), StoreError> {
        let path = self.state_dir.join(FILE);
        let keep = || -> io::Result<()> {
            crash::fault("syncing")?;
            let file = super::write(&self.objects, &serde_json::to_vec(table)?)?;
            lasting::sync(&file)?;
            file.persist(&path)?;
            lasting::sync(&self.state_dir)
        };
        keep().map_err(failed("writing", &path))
    }
}
