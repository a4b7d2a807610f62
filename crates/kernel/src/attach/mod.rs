//! The attachment of loaded probes, and their windows: epoch words, flips, grace periods.

pub mod attached;
pub mod deployable;
pub mod dispatcher;
pub mod epoch;
pub mod expedite;
pub mod expedite_switch;
pub mod held;
pub mod hook;
pub mod host;
pub mod places;
pub mod quiesce;
pub mod quiesced;
pub mod rank;
pub mod reclaim;
pub mod replaced;
