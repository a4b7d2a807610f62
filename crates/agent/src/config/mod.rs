//! A probe's configuration in two stages: [`ConfigDocument`] is what a client may write, [`ProbeConfig`] is
//! what holds once every rule of it was checked. Pure: no file, no kernel, no root.

mod interface;
mod probe;
mod validate;
mod window;

pub use interface::InterfacePattern;
pub use probe::{
    AfterRead, AttachRequest, Direction, DirectionConfig, Hook, MetricConfig, MetricRequest, OnReplace,
    Position, ProbeConfig, Source, StrategyChoice, Verdict, Visibility, XdpMode,
};
pub use twinprobe_client::{
    ConfigDocument, DirectionDocument, MergeDocument, MetricDocument, ParseError, WindowDocument,
    parse_document,
};
pub use validate::check_name;
pub use window::{Schedule, WindowConfig};
