//! The library of probes and rules in the binaries, and the settings that a source leaves to its
//! configuration.

#![forbid(unsafe_code)]

mod choice;
mod knobs;
mod library;
mod rules;

pub use self::choice::{ChoiceError, changed, choose, define, fleet_probe, give};
pub use self::knobs::{Knob, OF_THE_HEADER, defines, is_fixed, mentions, variables};
pub use self::library::{LibraryEntry, LibraryError, configuration, entry, index, library_probe};
pub use self::rules::{LibraryRule, NoSuchRule, library_rule, rules};
