//! The vocabulary of all crates of twinprobe: the directions of programs ([`Direction`]), the types
//! of maps ([`MapKind`]), the meaning of their bytes ([`Btf`], [`Layout`]), their content
//! ([`RawTable`]), and the facts about metrics and documents ([`Aggregation`], [`Window`],
//! [`Format`]). This crate does no IO.

#![forbid(unsafe_code)]

mod btf;
mod convert;
mod cost;
mod document;
mod event_kind;
pub mod field;
pub mod finding;
pub mod hook;
pub mod ipfix;
mod layout;
mod map_kind;
pub mod metric;
pub mod request;
mod table;
pub mod unit;
pub mod window;

pub use btf::blob::Btf;
pub use btf::error::BtfError;
pub use btf::section::{InnerMapTypes, MapTypes, SectionVariable};
pub use convert::rows::{carries, convert, convert_onto, convert_slots};
pub use convert::value::Conversion;
pub use cost::{DirectionCost, ProbeCost, RunCost};
pub use document::{Context, DocumentOrigin, Format, Head, PacketCounts, Replayed};
pub use event_kind::EventKind;
pub use hook::Direction;
pub use layout::{EnumVariant, Layout, Member, Render, Shape};
pub use map_kind::{MapFamily, MapKind};
pub use metric::head::{Fill, MetricHead};
pub use metric::{
    Aggregation, Completeness, Losses, MergeRule, MergeRules, SeriesRules, Temporality,
};
pub use table::changes::TableChanges;
pub use table::interface::carries_over;
pub use table::{RawTable, TableLayout, TableRow};
pub use window::Window;
pub use window::owner::PodNames;
