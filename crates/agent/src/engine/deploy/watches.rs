//! The watches over namespaces whose interfaces come and go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The tasks that wait for interfaces, one for each namespace that a probe is in, and the task that checks attachments.
#[derive(Debug, Default)]
pub struct Watches {
    pub namespaces: Mutex<BTreeMap<Namespace, AbortHandle>>,
    pub looks: OnceLock<()>,
}

/// A network namespace: the daemon's own, or that of a path.
pub type Namespace = Option<PathBuf>;
