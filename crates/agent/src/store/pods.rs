//! The file `pods.json`: the pods of the node as a local agent has reported them, so that a daemon that
//! starts knows them before the agent comes back.

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
                tracing::warn!(path = %path.display(), %error, "the pods can't be read; they are told again");
            }
            PodTable::default()
        })
    }

    /// Replaces the pods. The new ones are on disk when this returns; after an error the old ones are.
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
