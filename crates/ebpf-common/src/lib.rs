//! The vocabulary both sides of twinprobe share: what a map is and can do ([`MapKind`]), what its bytes
//! mean ([`btf`], [`Layout`]) and what was read from it ([`RawTable`]). This crate does no IO.

#![forbid(unsafe_code)]

pub mod btf;
pub mod convert;
mod event_kind;
pub mod finding;
mod layout;
mod map_kind;
mod table;
pub mod window_list;

pub use event_kind::EventKind;
pub use layout::{EnumVariant, Layout, Member, Render, Shape};
pub use map_kind::{MapFamily, MapKind};
pub use table::{RawTable, Row, TableLayout};
