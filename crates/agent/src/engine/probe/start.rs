//! The beginning of the open window, as a deployment finds it.

use crate::engine::deploy::history::Before;

/// Tells whether the base of a deployment is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Known,
    /// The base could not be read so far: no window is closed before the base is read.
    Awaited(Before),
}
