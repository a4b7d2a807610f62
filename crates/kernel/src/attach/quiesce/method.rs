//! The methods to wait for a grace period, by name.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

/// The time to wait for one method before the next method starts as well. It is longer than any
/// method usually takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// A method to wait for a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuiesceMethod {
    /// The first of the following methods that is valid on this machine.
    Auto,
    /// One thread moves to every CPU, one after the other.
    Sweep,
    /// `membarrier(MEMBARRIER_CMD_GLOBAL)`.
    Membarrier,
    /// The update of a map of maps.
    MapInMap,
    /// No wait at all, so that windows are torn. Only a test uses it, to show this.
    None,
}

/// The state of a method on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MethodReport {
    pub name: String,
    pub available: bool,
    /// The reason why the method is not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// A function that returns after a full grace period. The number is the index of a CPU that all
/// earlier programs have left; `None` if no such CPU is known.
pub type Way = Arc<dyn Fn(Option<usize>) -> io::Result<()> + Send + Sync>;

impl QuiesceMethod {
    /// The methods that wait, preferred methods first.
    pub const ALL: [Self; 3] = [Self::Sweep, Self::Membarrier, Self::MapInMap];

    /// The methods that can be chosen. `None` is for the test that shows what happens without a
    /// grace period.
    pub const CHOICES: [Self; 5] = [
        Self::Auto,
        Self::Sweep,
        Self::Membarrier,
        Self::MapInMap,
        Self::None,
    ];

    /// The names by which a method is chosen on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sweep => "sweep",
            Self::Membarrier => "membarrier",
            Self::MapInMap => "map-in-map",
            Self::None => "none",
        }
    }
}

impl MethodReport {
    pub fn new(method: QuiesceMethod, failure: Option<String>) -> Self {
        Self {
            name: method.name().to_owned(),
            available: failure.is_none(),
            reason: failure,
        }
    }
}
