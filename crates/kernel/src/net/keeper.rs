//! The keeper of facts about the changes that interfaces make to packets, for all probes. A query
//! holds the kernel's lock of all links, so queries are rare: at intervals, and about a link after
//! the kernel has reported its change. The kernel reports a change of offloads before `ethtool`
//! ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::net::netns::Netns;
use crate::net::offloads::{Offloads, offloads};
use crate::net::rtnl::socket::{Link, Message, NetlinkSocket};

/// The interfaces that probes are attached to, by the number of the namespace.
#[derive(Debug, Default)]
pub struct OffloadKeeper(Mutex<BTreeMap<u64, KeptNamespace>>);

/// The stored facts about an interface; `None` if the interface does not exist, or can't be
/// queried.
pub type KeptAnswer = Option<Arc<Offloads>>;

#[derive(Debug)]
struct KeptNamespace {
    /// The socket that receives changes of links; without it, only the next look finds them.
    events: Option<NetlinkSocket>,
    known: BTreeMap<u32, KnownAnswer>,
    /// The number of the kernel's messages so far. Each answer stores the number at the time of its
    /// query.
    told: u64,
}

#[derive(Debug)]
struct KnownAnswer {
    kept: KeptAnswer,
    /// The link at the other end of a veth pair.
    peer: Option<u32>,
    /// False once the kernel has reported a change of the link.
    is_fresh: bool,
}

impl KeptNamespace {
    /// Watches a namespace, before the first query about its links.
    fn new(netns: &Netns) -> Self {
        let events = NetlinkSocket::subscribe(netns, libc::RTMGRP_LINK as u32);
        let events = events.inspect_err(note).ok();
        Self {
            events,
            known: BTreeMap::new(),
            told: 0,
        }
    }

    /// Reads the kernel's messages since the last call. This never waits.
    fn hear(&mut self) {
        let Some(events) = &mut self.events else {
            return;
        };
        loop {
            let messages = match events.receive() {
                Ok(messages) => messages,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Messages are missing: any link may differ.
                Err(_) => {
                    self.told += 1;
                    self.known
                        .values_mut()
                        .for_each(|known| known.is_fresh = false);
                    continue;
                }
            };
            for message in messages {
                if let Message::Here(Link { index, .. }) | Message::Gone(index) = message {
                    self.told += 1;
                    let is_of = |(of, known): &(&u32, &mut KnownAnswer)| {
                        **of == index || known.peer == Some(index)
                    };
                    self.known
                        .iter_mut()
                        .filter(is_of)
                        .for_each(|(_, known)| known.is_fresh = false);
                }
            }
        }
    }

    /// Stores an answer with the number of messages at the time of its query, and returns the
    /// answer. Equal answers share one object.
    fn keep(&mut self, index: u32, answer: Option<Offloads>, told: u64) -> KeptAnswer {
        let peer = answer.as_ref().and_then(|offloads| offloads.peer_index);
        let before = self.known.remove(&index).and_then(|known| known.kept);
        let kept = match (before, answer) {
            (Some(before), Some(now)) if *before == now => Some(before),
            (_, now) => now.map(Arc::new),
        };
        self.known.insert(
            index,
            KnownAnswer {
                kept: kept.clone(),
                peer,
                is_fresh: told == self.told,
            },
        );
        kept
    }
}

impl OffloadKeeper {
    /// Queries these interfaces again, and forgets all others. This may have to wait for the
    /// kernel.
    pub fn look<'a>(&self, places: impl Iterator<Item = (&'a Netns, u32)>) {
        let wanted = by_namespace(places);
        // A kept descriptor would keep a namespace alive.
        self.0.lock().retain(|id, _| wanted.contains_key(id));
        for (netns, indices) in wanted.into_values() {
            if let Some(namespace) = self.0.lock().get_mut(&netns.id()) {
                namespace.known.retain(|index, _| indices.contains(index));
            }
            self.ask(netns, &indices);
        }
    }

    /// Returns the facts about each interface, in the order of the places. Only interfaces that are
    /// new here, or have changed, cause a query to the kernel.
    pub fn get<'a>(
        &self,
        places: impl Iterator<Item = (&'a Netns, u32)> + Clone,
    ) -> Vec<KeptAnswer> {
        // A look may forget an interface at any moment, because it began before the probe was
        // attached.
        let mut found = BTreeMap::new();
        for (id, (netns, mut indices)) in by_namespace(places.clone()) {
            if let Some(namespace) = self.0.lock().get_mut(&id) {
                namespace.hear();
                for (index, known) in namespace.known.iter().filter(|(_, known)| known.is_fresh) {
                    if indices.remove(index) {
                        found.insert((id, *index), known.kept.clone());
                    }
                }
            }
            if !indices.is_empty() {
                let answers = self.ask(netns, &indices).into_iter();
                found.extend(answers.map(|(index, kept)| ((id, index), kept)));
            }
        }
        places
            .map(|(netns, index)| found.get(&(netns.id(), index)).cloned().flatten())
            .collect()
    }

    /// Marks the stored facts about these interfaces as outdated, after a change that the kernel
    /// may not report: generic XDP has got or lost a program.
    pub fn doubt<'a>(&self, places: impl Iterator<Item = (&'a Netns, u32)>) {
        let mut namespaces = self.0.lock();
        for (netns, index) in places {
            if let Some(known) = namespaces
                .get_mut(&netns.id())
                .and_then(|of| of.known.get_mut(&index))
            {
                known.is_fresh = false;
            }
        }
    }

    /// Queries the kernel, and returns the answers. The lock is not held during the query, because
    /// the kernel may take long. If the kernel can't be queried, the earlier answers stay valid.
    fn ask(&self, netns: &Netns, indices: &BTreeSet<u32>) -> BTreeMap<u32, KeptAnswer> {
        if !self.0.lock().contains_key(&netns.id()) {
            let namespace = KeptNamespace::new(netns);
            self.0.lock().entry(netns.id()).or_insert(namespace);
        }
        let told = self.heard(netns.id());
        let listed: Vec<u32> = indices.iter().copied().collect();
        let answers = offloads(netns, &listed).inspect_err(note).ok();
        self.heard(netns.id());
        let mut namespaces = self.0.lock();
        let mut namespace = namespaces.get_mut(&netns.id());
        let Some(mut answers) = answers else {
            let kept = |index| namespace.as_ref()?.known.get(index)?.kept.clone();
            return indices.iter().map(|index| (*index, kept(index))).collect();
        };
        let keep = |index: &u32| {
            let answer = answers.remove(index);
            let kept = match &mut namespace {
                Some(namespace) => namespace.keep(*index, answer, told),
                None => answer.map(Arc::new),
            };
            (*index, kept)
        };
        indices.iter().map(keep).collect()
    }

    fn heard(&self, id: u64) -> u64 {
        self.0.lock().get_mut(&id).map_or(0, |namespace| {
            namespace.hear();
            namespace.told
        })
    }
}

fn by_namespace<'a>(
    places: impl Iterator<Item = (&'a Netns, u32)>,
) -> BTreeMap<u64, (&'a Netns, BTreeSet<u32>)> {
    let mut wanted: BTreeMap<u64, (&Netns, BTreeSet<u32>)> = BTreeMap::new();
    for (netns, index) in places {
        wanted
            .entry(netns.id())
            .or_insert_with(|| (netns, BTreeSet::new()))
            .1
            .insert(index);
    }
    wanted
}

fn note(error: &io::Error) {
    tracing::debug!(%error, "the kernel does not report the offloads of interfaces");
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::net::interface;
    use crate::net::netns::testing::Named;

    struct Scene {
        named: Named,
        netns: Netns,
        keeper: OffloadKeeper,
        index: u32,
    }

    impl Scene {
        fn new() -> Self {
            let named = Named::new();
            named.ip("link add tpa type veth peer name tpb");
            named.ip("link add tpo type veth peer name tpp");
            let netns = Netns::open(&named.path()).unwrap();
            let index = interface::list(&netns).unwrap().by_name["tpa"];
            Self {
                named,
                netns,
                keeper: OffloadKeeper::default(),
                index,
            }
        }

        fn get(&self) -> Arc<Offloads> {
            self.keeper
                .get([(&self.netns, self.index)].into_iter())
                .remove(0)
                .unwrap()
        }

        fn asks(&self) -> bool {
            let mut namespaces = self.keeper.0.lock();
            let namespace = namespaces.get_mut(&self.netns.id()).unwrap();
            namespace.hear();
            namespace
                .known
                .get(&self.index)
                .is_none_or(|known| !known.is_fresh)
        }

        fn ethtool(&self, arguments: &str) {
            let inside = format!("netns exec {} ethtool -K {arguments}", self.named.0);
            let output = Command::new("ip").args(inside.split(' ')).output().unwrap();
            assert!(
                output.status.success(),
                "{arguments}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }

    #[test]
    fn the_kernel_is_asked_once_until_it_tells_a_change() {
        let scene = Scene::new();
        // Earlier kernels make the pair with GRO on.
        scene.ethtool("tpa gro off");
        let first = scene.get();
        assert!(!first.features.unwrap().gro);
        assert!(!scene.asks());
        assert!(Arc::ptr_eq(&first, &scene.get()));
        scene.ethtool("tpo gro on");
        assert!(!scene.asks(), "another link");

        scene.ethtool("tpa gro on");
        assert!(scene.asks());
        let second = scene.get();
        assert!(second.features.unwrap().gro && !scene.asks());

        // A change of the other end of a veth pair is also a change of this end.
        scene.ethtool("tpb tso off gso off tx-udp-segmentation off");
        assert!(scene.asks());
        assert!(!scene.get().peer.as_ref().unwrap().1.segments);
    }

    #[test]
    fn a_look_asks_anew_and_forgets_what_has_gone() {
        let scene = Scene::new();
        let first = scene.get();
        scene.keeper.look([(&scene.netns, scene.index)].into_iter());
        assert!(Arc::ptr_eq(&first, &scene.get()), "nothing has changed");
        scene.named.ip("link del tpa");
        assert!(scene.asks());
        assert_eq!(
            scene.keeper.get([(&scene.netns, scene.index)].into_iter()),
            [None]
        );
        scene.keeper.look(std::iter::empty());
        assert!(scene.keeper.0.lock().is_empty());
    }

    #[test]
    fn a_look_that_forgets_takes_no_answer_away() {
        let scene = Scene::new();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    scene.keeper.look(std::iter::empty());
                }
            });
            let missing = (0..2000).filter(|_| {
                let places = [(&scene.netns, scene.index)].into_iter();
                scene.keeper.get(places) == [None]
            });
            let missing = missing.count();
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(missing, 0, "answers");
        });
    }

    #[test]
    fn messages_that_are_missing_make_the_kernel_be_asked() {
        let scene = Scene::new();
        scene.get();
        {
            let namespaces = scene.keeper.0.lock();
            let events = namespaces[&scene.netns.id()].events.as_ref().unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(events, 1).unwrap();
        }
        for i in 0..10 {
            scene
                .named
                .ip(&format!("link add tpx{i} type veth peer name tpy{i}"));
        }
        assert!(scene.asks());
    }
}
