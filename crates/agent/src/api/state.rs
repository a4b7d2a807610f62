//! The state that handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::engine::engine::Engine;
use crate::history::options::HistorySource;
use crate::names::book::NameBook;
use crate::nodes::file::NodesFile;
use crate::rules::book::RuleBook;
use twinprobe_access::Access;

/// The state that all handlers share.
#[derive(Clone, Debug)]
pub struct Api {
    pub engine: Arc<Engine>,
    pub readiness: Arc<Readiness>,
    pub rules: Arc<RuleBook>,
    /// The names of addresses and ports that the operator has asked for.
    pub names: Arc<NameBook>,
    /// The server for charts beyond the retained windows; `None` if the operator has named none.
    pub history: Option<Arc<HistorySource>>,
    /// The other daemons that the console shows; `None` if the operator has named none.
    pub nodes: Option<Arc<NodesFile>>,
    pub access: Arc<Access>,
    /// A notification after each answered request.
    pub answered: Arc<Notify>,
}

/// The state of the daemon, as bits. A daemon may be stopping without having been ready.
#[derive(Debug, Default)]
pub struct Readiness(pub AtomicU8);

impl Readiness {
    /// Notes that every stored probe is in place, or is listed with the reason why it is not.
    pub fn set_ready(&self) {
        self.0.fetch_or(READY, Ordering::Release);
    }

    /// Notes that the daemon will end after it has answered the requests under way.
    pub fn set_stopping(&self) {
        self.0.fetch_or(STOPPING, Ordering::Release);
    }
}

/// The bit that is set once every stored probe is in place, or is listed with the reason why it is
/// not.
pub const READY: u8 = 1;

/// The bit that is set when the daemon is about to end, after the present requests are answered.
pub const STOPPING: u8 = 2;
