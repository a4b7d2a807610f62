//! The reasons why a probe's numbers may differ from those on the wire: the headers that its
//! programs read, and the offloads of its interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_ebpf_common::hook::XdpMode;
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::offloads::{Offloads, offloads};
use twinprobe_kernel::{
    AttachInterface, AttachedAt, LoadedDirection, OffloadKeeper, Sees, exactness,
};

use crate::engine::placement::PendingPlace;

/// The most reasons that a document names.
const MOST: usize = 8;

/// The facts about the interfaces of one deployment.
#[derive(Debug, Default)]
pub struct Exactness {
    /// The keeper of the present offloads: these may change while a probe runs.
    keeper: Arc<OffloadKeeper>,
    known: Mutex<KnownPlaces>,
}

/// The identity of a place: the namespace, the index of the interface, and the mode of XDP.
type AskedPlace = (u64, u32, Option<&'static str>);

#[derive(Debug, Default)]
struct KnownPlaces {
    /// The places in the last query.
    places: Vec<AskedPlace>,
    /// The interface of each place at the time of the query; `None` if the interface did not exist.
    interfaces: Vec<Option<Arc<Offloads>>>,
    /// The findings about each place.
    found: Vec<Found>,
    /// The reasons that were found since the open window began, each with its direction.
    since: BTreeSet<String>,
    /// The reasons that the packets of the last window have given, and packets outside of windows.
    packets: BTreeSet<String>,
}

/// The findings about a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The reasons why numbers are approximate.
    pub approximate: Vec<String>,
    /// The warning about a program without marks.
    pub warning: Option<String>,
}

impl Found {
    /// Returns the reasons as one text; `None` if there are none.
    pub fn text(&self) -> Option<String> {
        (!self.approximate.is_empty()).then(|| self.approximate.join("; "))
    }
}

impl Exactness {
    pub fn new(keeper: &Arc<OffloadKeeper>) -> Self {
        Self {
            keeper: Arc::clone(keeper),
            known: Mutex::default(),
        }
    }

    /// Finds the present reasons. This queries the kernel only about an interface that is new, or
    /// of which the kernel has reported a change. `sees` has the parts of packets that the programs
    /// of the directions read.
    pub fn refresh(&self, places: &[AttachedAt], sees: &[Sees]) {
        let asked = asked(places);
        let interfaces = self
            .keeper
            .get(places.iter().map(|at| (&at.place.netns, at.place.ifindex)));
        let mut known = self.known.lock();
        if known.is_still(&asked, &interfaces) {
            return;
        }
        let found =
            places
                .iter()
                .zip(&asked)
                .zip(&interfaces)
                .map(|((at, (_, _, mode)), offloads)| {
                    let sees = sees.get(at.direction).copied().unwrap_or_default();
                    // The kernel knows nothing of an interface that was removed.
                    let Some(offloads) = offloads else {
                        return Found::default();
                    };
                    Found {
                        approximate: exactness::reasons(offloads, at.place.hook, *mode, sees),
                        warning: exactness::warning(offloads, sees),
                    }
                });
        known.found = found.collect();
        (known.interfaces, known.places) = (interfaces, asked);
        let lines = known.lines(places);
        known.since.extend(lines);
    }

    /// Returns the known facts about each place, without waiting; nothing if the places have
    /// changed.
    pub fn known(&self, places: &[AttachedAt]) -> Vec<Found> {
        let known = self.known.lock();
        if known.is_of(places) {
            known.found.clone()
        } else {
            Vec::new()
        }
    }

    /// Returns the text for a document with counts from these places, by the known facts; `None` if
    /// all counts are exact.
    pub fn text(&self, places: &[AttachedAt]) -> Option<String> {
        let known = self.known.lock();
        let of_places = if known.is_of(places) {
            known.lines(places)
        } else {
            BTreeSet::new()
        };
        text(&of_places | &known.packets)
    }

    /// Returns the reasons for the window that ends now. They include reasons that applied only for
    /// a part of the window.
    pub fn of_window(&self, places: &[AttachedAt], sees: &[Sees]) -> BTreeSet<String> {
        self.refresh(places, sees);
        let mut known = self.known.lock();
        let now = known.lines(places);
        std::mem::replace(&mut known.since, now)
    }

    /// Returns the text for a window with these reasons and the reasons that its packets have
    /// given. The latter stay until the next window ends.
    pub fn of_packets(
        &self,
        reasons: &BTreeSet<String>,
        packets: BTreeSet<String>,
    ) -> Option<String> {
        let text = text(reasons | &packets);
        self.known.lock().packets = packets;
        text
    }

    /// Notes reasons of packets that were counted outside of windows.
    pub fn note_packets(&self, reasons: BTreeSet<String>) {
        self.known.lock().packets.extend(reasons);
    }
}

/// Returns the places for a query: the namespace, the index and the mode of XDP of each.
fn asked(places: &[AttachedAt]) -> Vec<AskedPlace> {
    places
        .iter()
        .map(|at| (at.place.netns.id(), at.place.ifindex, at.health().mode))
        .collect()
}

impl KnownPlaces {
    /// Tells whether nothing has changed since the last query. After a change of an interface, the
    /// keeper returns another object for it.
    fn is_still(&self, asked: &[AskedPlace], interfaces: &[Option<Arc<Offloads>>]) -> bool {
        let is_same = |(a, b): (&Option<Arc<Offloads>>, &Option<Arc<Offloads>>)| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        self.places == asked && self.interfaces.iter().zip(interfaces).all(is_same)
    }

    fn is_of(&self, places: &[AttachedAt]) -> bool {
        let here = |at: &AttachedAt| (at.place.netns.id(), at.place.ifindex);
        places
            .iter()
            .map(here)
            .eq(self.places.iter().map(|(netns, index, _)| (*netns, *index)))
    }

    fn lines(&self, places: &[AttachedAt]) -> BTreeSet<String> {
        let lines = places.iter().zip(&self.found).flat_map(|(at, found)| {
            let of = Direction::from(at.place.hook);
            found
                .approximate
                .iter()
                .map(move |reason| format!("{of}: {reason}"))
        });
        lines.collect()
    }
}

fn text(lines: BTreeSet<String>) -> Option<String> {
    let more = lines.len().saturating_sub(MOST);
    let mut lines: Vec<String> = lines.into_iter().take(MOST).collect();
    if more > 0 {
        lines.push(format!("and {more} more: see the probe's status"));
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Queries the kernel about interfaces, by the number of the namespace and the index. Leaves out
/// interfaces that can't be queried.
fn read<'a>(interfaces: impl Iterator<Item = (&'a Netns, u32)>) -> BTreeMap<(u64, u32), Offloads> {
    let mut wanted: BTreeMap<u64, (&Netns, BTreeSet<u32>)> = BTreeMap::new();
    for (netns, index) in interfaces {
        wanted
            .entry(netns.id())
            .or_insert_with(|| (netns, BTreeSet::new()))
            .1
            .insert(index);
    }
    let mut found = BTreeMap::new();
    for (id, (netns, indices)) in wanted {
        let indices: Vec<u32> = indices.into_iter().collect();
        match offloads(netns, &indices) {
            Ok(of) => found.extend(
                of.into_iter()
                    .map(|(index, offloads)| ((id, index), offloads)),
            ),
            Err(error) => note(&error),
        }
    }
    found
}

fn note(error: &io::Error) {
    tracing::debug!(%error, "the kernel does not report the offloads of interfaces");
}

/// Leaves out the interfaces to which a program can't be attached, because the program would
/// mistake one header for another. Returns these interfaces with the reason. Refuses the probe if
/// the configuration names one of them.
pub fn fitting(
    interfaces: Vec<AttachInterface>,
    directions: &[LoadedDirection],
) -> Result<(Vec<AttachInterface>, Vec<PendingPlace>), Rejection> {
    if !directions.iter().any(|loaded| loaded.plan.sees.ethernet) {
        return Ok((interfaces, Vec::new()));
    }
    let known = read(
        interfaces
            .iter()
            .map(|interface| (&interface.netns, interface.index)),
    );
    let (mut fitting, mut left, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for interface in interfaces {
        let offloads = known.get(&(interface.netns.id(), interface.index));
        let reason = offloads.and_then(|offloads| {
            directions
                .iter()
                .find_map(|loaded| exactness::refusal(offloads, loaded.plan.sees))
        });
        match reason {
            None => fitting.push(interface),
            Some(reason) if interface.required => {
                refused.push(Finding::new(Stage::Attach, "interface", reason));
            }
            Some(reason) => left.push(PendingPlace {
                interface: interface.name,
                reason,
            }),
        }
    }
    if refused.is_empty() {
        Ok((fitting, left))
    } else {
        Err(refused.into())
    }
}

/// Returns the warnings that a probe would get at these interfaces, without attaching it.
pub fn warnings(interfaces: &[AttachInterface], directions: &[LoadedDirection]) -> Vec<Finding> {
    let known = read(
        interfaces
            .iter()
            .map(|interface| (&interface.netns, interface.index)),
    );
    let mut found = BTreeSet::new();
    for (offloads, loaded) in known
        .values()
        .flat_map(|known| directions.iter().map(move |of| (known, of)))
    {
        let (attach, sees) = (&loaded.plan.attach, loaded.plan.sees);
        let mode = match attach.xdp_mode {
            XdpMode::Native => Some("native"),
            XdpMode::Generic => Some("generic"),
            XdpMode::Auto => None,
        };
        let reasons = exactness::reasons(offloads, attach.hook, mode, sees);
        let said = reasons.into_iter().map(|reason| approximately(&reason));
        let said = said.chain(exactness::warning(offloads, sees));
        found.extend(said.map(|message| (Direction::from(attach.hook).name(), message)));
    }
    found
        .into_iter()
        .map(|(field, message)| Finding::new(Stage::Attach, field, message))
        .collect()
}

/// Returns the warning that says why numbers are approximate.
pub fn approximately(reason: &str) -> String {
    format!("numbers are approximate: {reason}")
}
