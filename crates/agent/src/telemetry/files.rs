//! The states of the files in the directory of `--probes`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::telemetry::counters::Amount;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFile {
    file: String,
}

/// The family that shows which files could not be deployed.
#[derive(Debug)]
pub struct ProbeFiles(Family<OfFile, Amount<u64>>);

impl ProbeFiles {
    pub fn new(registry: &mut Registry) -> Self {
        let failed = Family::default();
        let help = "Whether a file of --probes could not be deployed";
        registry.register("twinprobe_probe_file_failed", help, failed.clone());
        Self(failed)
    }

    pub fn set(&self, file: &str, failed: bool) {
        self.0
            .get_or_create(&OfFile {
                file: file.to_owned(),
            })
            .set(u64::from(failed));
    }

    /// Removes a deleted file from the family.
    pub fn forget(&self, file: &str) {
        self.0.remove(&OfFile {
            file: file.to_owned(),
        });
    }
}
