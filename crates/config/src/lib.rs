//! A probe's configuration in two stages: a `ConfigDocument` has the fields as a client writes
//! them, and a `ProbeConfig` obeys every rule. Validation needs no file, no kernel and no root.

#![forbid(unsafe_code)]

mod direction;
mod interface;
mod metric;
mod places;
mod pods;
mod probe;
mod validate;
mod window;

pub use self::direction::DirectionConfig;
pub use self::direction::code::{Code, SourceCode};
pub use self::interface::InterfacePattern;
pub use self::metric::MetricConfig;
pub use self::places::PlacesConfig;
pub use self::pods::PodSelector;
pub use self::probe::{ProbeConfig, check_name, check_netns};
pub use self::validate::names::is_probe_name;
pub use self::validate::pods::check_pods;
pub use self::window::{Schedule, WindowConfig};
