//! The only crate that imports aya or calls `bpf(2)`.
//!
//! | folder | content |
//! |---|---|
//! | `plan` | the needs of a probe, from its object and its request alone: without a kernel and without root |
//! | `admit` | the proof that a program does only what its probe may do |
//! | `load` | maps, programs, pins, and the content taken over from an earlier deployment |
//! | `attach` | hooks, dispatchers, epoch words, grace periods, and attached probes |
//! | `read` | the ways to read and reset a map, one file for each family of types |
//! | `profile` | samples of where CPUs spend their time |
//! | `trial` | the trials of this kernel's abilities |
//! | `net`, `sys` | namespaces, interfaces and route netlink; system calls |

mod admit;
mod attach;
mod capabilities;
mod kernel;
mod load;
mod net;
mod plan;
mod profile;
mod read;
mod sys;
mod trial;

pub use self::admit::uses::MapUses;
pub use self::attach::attached::Attached;
pub use self::attach::deployable::Deployable;
pub use self::attach::dispatcher::health::Health;
pub use self::attach::dispatcher::live::{LiveCall, LiveRuns};
pub use self::attach::expedite::{Expedite, Expedited, left_on};
pub use self::attach::held::HeldDeployment;
pub use self::attach::hook::ahead::{TcAhead, tc_ahead};
pub use self::attach::hook::attachment::TcMethod;
pub use self::attach::hook::error::AttachError;
pub use self::attach::hook::foreign::{XdpNeighbour, neighbours};
pub use self::attach::hook::loader::XdpLoader;
pub use self::attach::host::Host;
pub use self::attach::places::{AttachInterface, AttachedAt, NotAttached};
pub use self::attach::quiesce::method::QuiesceMethod;
pub use self::attach::quiesced::Quiesced;
pub use self::attach::replaced::ReplacedDeployment;
pub use self::capabilities::Capabilities;
pub use self::kernel::Kernel;
pub use self::load::carry::transfer::{Loss, Remains};
pub use self::load::deadline::Deadline;
pub use self::load::direction::LoadedDirection;
pub use self::load::examine::examine;
pub use self::load::maps::{Predecessor, TwinMap};
pub use self::load::pins::{Deployment, Identity};
pub use self::net::keeper::OffloadKeeper;
pub use self::net::pods::{PodFinder, PodPlace};
pub use self::net::rtnl::traffic;
pub use self::net::{exactness, interface, netns, offloads, watch};
pub use self::plan::footprint::Footprint;
pub use self::plan::metric::losses::is_unsure;
pub use self::plan::object::ProbeObject;
pub use self::plan::probe_plan::{
    DirectionPlan, Extraction, MapPlan, MetricPlan, MetricSource, OwnInterface, ProbePlan,
};
pub use self::plan::request::{DeclaredAt, DirectionRequest, KernelFacts};
pub use self::plan::sees::Sees;
pub use self::read::events::event_map::{EventMap, EventReader};
pub use self::read::events::record::{EventRecord, ReadingEnd};
pub use self::read::events::waiter::Waiter;
pub use self::read::map::MetricMap;
pub use self::sys::affinity::Affinity;
pub use self::sys::call::KernelError;
pub use self::sys::clock;
pub use self::sys::cpus::stay_on_one_cpu;
pub use self::sys::process as memory;
pub use self::trial::replay::control::Control as ReplayClock;
pub use self::trial::replay::lane::{Counts as ReplayCounts, Lane as ReplayLane};

/// The abilities of this kernel with maps of a type.
pub mod extraction {
    pub use crate::trial::maps::operations;
}
