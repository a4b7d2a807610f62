//! The daemons of a stream at this moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::daemon::SourceDaemon;

/// The daemons by their names. Those of a Service of Kubernetes come and go.
#[derive(Clone, Debug, Default)]
pub struct DaemonRoster(Arc<Mutex<BTreeMap<String, Arc<SourceDaemon>>>>);

impl DaemonRoster {
    pub fn add(&self, daemon: Arc<SourceDaemon>) {
        self.0.lock().insert(daemon.name.clone(), daemon);
    }

    pub fn remove(&self, name: &str) {
        self.0.lock().remove(name);
    }

    pub fn all(&self) -> Vec<Arc<SourceDaemon>> {
        self.0.lock().values().cloned().collect()
    }
}
