//! What commands that talk to daemons work with.

use crate::fleet::fleet::Fleet;
use crate::report::reporter::Reporter;

/// The daemons, and the writer of messages.
#[derive(Debug)]
pub struct Session {
    pub fleet: Fleet,
    pub reporter: Reporter,
}
