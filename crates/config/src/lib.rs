//! A probe's configuration in two stages: a `ConfigDocument` has the fields as a client writes them, and a
//! `ProbeConfig` obeys every rule. Validation needs no file, no kernel and no root.

#![forbid(unsafe_code)]

mod interface;
mod pods;
mod probe;
mod validate;
mod window;

pub use self::interface::InterfacePattern;
pub use self::pods::PodSelector;
pub use self::probe::{Code, DirectionConfig, MetricConfig, ProbeConfig, SourceCode};
pub use self::validate::names::is_probe_name;
pub use self::validate::pods::check_pods;
pub use self::validate::probe::{check_name, check_netns};
pub use self::window::{Schedule, WindowConfig};
