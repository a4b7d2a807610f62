//! The session of a command that talks to daemons.

use crate::fleet::fleet::Fleet;
use crate::report::reporter::Reporter;

/// The daemons, and the writer of messages.
#[derive(Debug)]
pub struct Session {
    pub fleet: Fleet,
    pub reporter: Reporter,
}
