//! The vocabulary both sides of twinprobe share: what a map is and can do ([`MapKind`]), what its bytes
//! mean ([`btf`], [`Layout`]) and what was read from it ([`RawTable`]). This crate does no IO.

#![forbid(unsafe_code)]

pub mod btf;
pub mod convert;
mod document;
mod event_kind;
pub mod finding;
pub mod hook;
mod layout;
mod map_kind;
pub mod metric;
mod table;
pub mod window;

pub use document::{Context, Format, Head};
pub use event_kind::EventKind;
pub use hook::Direction;
pub use layout::{EnumVariant, Layout, Member, Render, Shape};
pub use map_kind::{MapFamily, MapKind};
pub use metric::{Aggregation, MergeRule, MergeRules, Temporality};
pub use table::{RawTable, Row, TableLayout};
pub use window::Window;
