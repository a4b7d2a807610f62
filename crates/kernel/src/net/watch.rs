//! A watch of interfaces that are added, removed and renamed, in namespaces that may themselves be added and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval};

use crate::net::netns::Netns;
use crate::net::rtnl::socket::{self, Link, Message, NetlinkSocket};

/// The time between two checks of the namespace at a path. No notification reports that another namespace is at the path.
const LOOK: Duration = Duration::from_millis(250);

/// The changes since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkChanges {
    /// Indices of interfaces that were deleted or moved away, even if an interface of that name and index exists again by
    /// now. BPF links at a deleted interface are dead (`ENOLINK`), links at a moved interface continue to work until they
    /// are detached, and clsact filters have ended in both cases.
    pub gone: BTreeSet<u32>,
    /// True if messages of the kernel were lost, so that any interface may be missing.
    pub missed: bool,
    /// True if interfaces are new, removed or renamed.
    pub links: bool,
    /// True if filters have changed, so that a filter of the daemon may have been removed.
    pub filters: bool,
}

impl LinkChanges {
    /// Returns the changes after lost messages: any interface may have changed.
    pub fn unknown() -> Self {
        Self { missed: true, links: true, ..Self::default() }
    }

    /// Tells whether the interface with this index may have been removed in between.
    pub fn may_be_gone(&self, index: u32) -> bool {
        self.missed || self.gone.contains(&index)
    }
}

/// A watch of the links of one namespace.
#[derive(Debug)]
pub struct LinkWatch {
    netns: Netns,
    socket: AsyncFd<NetlinkSocket>,
    known: BTreeMap<u32, Link>,
    /// True if messages were lost, so that the links must be listed again.
    overflowed: bool,
}

impl LinkWatch {
    /// Watches the namespace that `find` returns, from now on. Call this in a runtime. A list that is made after this
    /// call misses no change. Work that may block runs on another thread.
    async fn open(find: impl FnOnce() -> io::Result<Netns> + Send + 'static) -> io::Result<Self> {
        let (netns, socket, known) = elsewhere(move || {
            let netns = find()?;
            let groups = libc::RTMGRP_LINK | libc::RTMGRP_TC;
            let socket = NetlinkSocket::subscribe(&netns, groups as u32)?;
            let known = socket::list(&netns)?;
            Ok((netns, socket, known))
        })
        .await?;
        // SAFETY: the socket owns its descriptor, which stays open and the same as long as it is registered.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { netns, socket, known, overflowed: false })
    }

    /// Waits until an interface is new, removed or renamed, or until filters have changed, and reads all messages so far.
    /// Changes of flags and addresses do not count. A drop of the future loses no change.
    pub async fn changed(&mut self) -> io::Result<LinkChanges> {
        loop {
            if self.overflowed {
                let netns = self.netns.clone();
                self.known = elsewhere(move || socket::list(&netns)).await?;
                self.overflowed = false;
                return Ok(LinkChanges::unknown());
            }
            let mut ready = self.socket.readable_mut().await?;
            let mut changes = None;
            // The loop ends when a read would block: a later message makes the socket readable again.
            while let Ok(received) = ready.try_io(|socket| socket.get_mut().receive()) {
                match received {
                    Ok(messages) => {
                        for message in messages {
                            hear(message, &mut self.known, &mut changes);
                        }
                    }
                    Err(error) if is_overflow(&error) => self.overflowed = true,
                    Err(error) => return Err(error),
                }
            }
            if let Some(changes) = changes.filter(|_| !self.overflowed) {
                return Ok(changes);
            }
        }
    }
}

fn hear(message: Message, known: &mut BTreeMap<u32, Link>, changes: &mut Option<LinkChanges>) {
    match message {
        Message::Here(link) => {
            if known.get(&link.index) != Some(&link) {
                changes.get_or_insert_default().links = true;
                known.insert(link.index, link);
            }
        }
        Message::Gone(index) => {
            let changes = changes.get_or_insert_default();
            changes.links = true;
            changes.gone.insert(index);
            known.remove(&index);
        }
        Message::Filters => changes.get_or_insert_default().filters = true,
        Message::Other => {}
    }
}

/// Runs work that may block on a path, or on the kernel's lock of all links (`rtnl_mutex`), on a thread for blocking
/// work.
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn is_overflow(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS) || error.kind() == io::ErrorKind::InvalidData
}

/// A change that [`PlaceWatch`] reports.
#[derive(Debug)]
pub enum NamespaceChange {
    /// Interfaces have changed in the namespace that was at the path before.
    Links(LinkChanges),
    /// Another namespace, or none, is at the path now. The state of earlier attachments is unknown.
    Namespace,
}

/// A watch of the links in the namespace that is at a path at any time, or in the daemon's own namespace.
#[derive(Debug)]
pub struct PlaceWatch {
    path: Option<PathBuf>,
    state: Result<LinkWatch, io::Error>,
}

impl PlaceWatch {
    /// Watches the namespace at `path`; `None` means the daemon's own namespace. Call this in a runtime.
    pub async fn new(path: Option<&Path>) -> Self {
        Self { path: path.map(Path::to_owned), state: open(path).await }
    }

    /// Waits until something has changed; see [`LinkWatch::changed`].
    pub async fn changed(&mut self) -> NamespaceChange {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The daemon's own namespace can't disappear.
            let may_differ = self.path.is_some() || self.state.is_err();
            let links = async {
                match &mut self.state {
                    Ok(watch) => watch.changed().await,
                    Err(_) => std::future::pending().await,
                }
            };
            let told = tokio::select! {
                told = links => Some(told),
                _ = looks.tick(), if may_differ => None,
            };
            match told {
                Some(Ok(changes)) => return NamespaceChange::Links(changes),
                Some(Err(error)) => {
                    self.state = Err(error);
                    return NamespaceChange::Namespace;
                }
                None if self.look().await => return NamespaceChange::Namespace,
                None => {}
            }
        }
    }

    /// Tells whether another namespace is at the path than before. A check that fails counts as no change.
    async fn look(&mut self) -> bool {
        match (&self.state, self.path.clone()) {
            (Ok(_), None) => false,
            (Ok(watch), Some(path)) => {
                let netns = watch.netns.clone();
                if elsewhere(move || netns.is_at(&path)).await.unwrap_or(true) {
                    return false;
                }
                self.state = open(self.path.as_deref()).await;
                true
            }
            (Err(before), _) => {
                let before = before.to_string();
                self.state = open(self.path.as_deref()).await;
                self.state.as_ref().map_or_else(|now| now.to_string() != before, |_| true)
            }
        }
    }
}

async fn open(path: Option<&Path>) -> io::Result<LinkWatch> {
    let path = path.map(Path::to_owned);
    LinkWatch::open(move || path.as_deref().map_or_else(Netns::own, Netns::open)).await
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::net::interface::list;
    use crate::net::netns::testing::Named;

    /// The longest time until the watch notices a change, however busy the machine is.
    const SOON: Duration = Duration::from_secs(120);
    const QUIET: Duration = Duration::from_millis(300);

    impl LinkWatch {
        async fn new(netns: &Netns) -> io::Result<Self> {
            let netns = netns.clone();
            Self::open(move || Ok(netns)).await
        }
    }

    impl PlaceWatch {
        /// Returns the namespace that was found last, or the reason why there was none.
        fn netns(&self) -> Result<&Netns, &io::Error> {
            self.state.as_ref().map(|watch| &watch.netns)
        }
    }

    async fn changes(watch: &mut LinkWatch) -> LinkChanges {
        timeout(SOON, watch.changed()).await.expect("a change is noticed").unwrap()
    }

    fn links() -> LinkChanges {
        LinkChanges { links: true, ..LinkChanges::default() }
    }

    /// Waits until the kernel has reported all steps of a change.
    async fn quiet(watch: &mut LinkWatch) {
        while let Ok(changes) = timeout(QUIET, watch.changed()).await {
            changes.unwrap();
        }
    }

    async fn stays_quiet(watch: &mut LinkWatch) {
        assert!(timeout(QUIET, watch.changed()).await.is_err(), "nothing that matters has changed");
    }

    fn index(netns: &Netns, name: &str) -> u32 {
        list(netns).unwrap().by_name[name]
    }

    #[tokio::test]
    async fn links_that_come_go_move_and_are_renamed_are_noticed() {
        let (here, there) = (Named::new(), Named::new());
        let netns = Netns::open(&here.path()).unwrap();
        let mut watch = LinkWatch::new(&netns).await.unwrap();
        stays_quiet(&mut watch).await;

        here.ip("link add tpa type veth peer name tpb");
        assert_eq!(changes(&mut watch).await, links());
        quiet(&mut watch).await;

        here.ip("link set tpa name tpc");
        assert_eq!(changes(&mut watch).await, links());
        stays_quiet(&mut watch).await;

        here.ip("link set tpc up");
        // The kernel reports alternative names only of links that are up.
        here.ip("link property add dev tpc altname tp-other");
        assert_eq!(changes(&mut watch).await, links());

        let moved = index(&netns, "tpc");
        here.ip(&format!("link set tpc netns {}", there.0));
        assert_eq!(changes(&mut watch).await.gone, [moved].into());
        quiet(&mut watch).await;
        there.ip(&format!("link set tpc netns {}", here.0));
        assert_eq!(changes(&mut watch).await, links());
        quiet(&mut watch).await;

        let deleted = [index(&netns, "tpc"), index(&netns, "tpb")].into();
        here.ip("link del tpc");
        let mut gone = changes(&mut watch).await.gone;
        while gone != deleted {
            gone.extend(changes(&mut watch).await.gone);
        }
        stays_quiet(&mut watch).await;
    }

    #[tokio::test]
    async fn what_is_told_of_a_link_that_stays_does_not_matter() {
        let named = Named::new();
        named.ip("link add tpa type veth peer name tpb");
        named.ip("link add tpbr type bridge");
        let mut watch = LinkWatch::new(&Netns::open(&named.path()).unwrap()).await.unwrap();
        for change in [
            "link set tpa up",
            "link set tpa mtu 1400",
            "link set tpa alias word",
            "addr add 10.9.8.7/24 dev tpa",
            "link set tpa master tpbr",
            "link set tpa nomaster",
            "link set tpa down",
        ] {
            named.ip(change);
        }
        stays_quiet(&mut watch).await;
    }

    /// A link that was removed and made again with the same name and index counts as removed, although no list shows the
    /// difference.
    #[tokio::test]
    async fn a_link_that_was_made_anew_has_gone() {
        let named = Named::new();
        named.ip("link add tpa index 77 type veth peer name tpb index 78");
        let mut watch = LinkWatch::new(&Netns::open(&named.path()).unwrap()).await.unwrap();
        named.ip("link del tpa");
        named.ip("link add tpa index 77 type veth peer name tpb index 78");
        assert_eq!(changes(&mut watch).await.gone, [77, 78].into());
    }

    #[tokio::test]
    async fn more_than_the_socket_holds_counts_as_a_change() {
        let named = Named::new();
        let mut watch = LinkWatch::new(&Netns::open(&named.path()).unwrap()).await.unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(watch.socket.get_ref(), 1).unwrap();
        for i in 0..10 {
            named.ip(&format!("link add tpa{i} type veth peer name tpb{i}"));
        }
        assert!(changes(&mut watch).await.missed);
        assert_eq!(watch.known.len(), 21);
        quiet(&mut watch).await;
        named.ip("link del tpa3");
        changes(&mut watch).await;
    }

    #[tokio::test]
    async fn namespaces_at_a_path_come_and_go() {
        let named = Named::new();
        let mut watch = PlaceWatch::new(Some(&named.path())).await;
        let id = watch.netns().unwrap().id();
        named.ip("link add tpa type veth peer name tpb");
        assert!(matches!(noticed(&mut watch).await, NamespaceChange::Links(_)));

        named.delete();
        while !matches!(noticed(&mut watch).await, NamespaceChange::Namespace) {}
        assert_eq!(watch.netns().unwrap_err().kind(), io::ErrorKind::NotFound);

        named.create();
        while watch.netns().is_err() {
            assert!(matches!(noticed(&mut watch).await, NamespaceChange::Namespace));
        }
        named.ip("link add tpc type veth peer name tpd");
        assert!(matches!(noticed(&mut watch).await, NamespaceChange::Links(_)));

        // The deletion and the creation happen between two checks. The old namespace is still open, so that the new one
        // gets another number.
        let id_before = watch.netns().unwrap().id();
        named.delete();
        named.create();
        while !matches!(noticed(&mut watch).await, NamespaceChange::Namespace) {}
        while watch.netns().is_err() {
            noticed(&mut watch).await;
        }
        assert_ne!(watch.netns().unwrap().id(), id_before, "first {id}");
    }

    #[tokio::test]
    async fn the_own_namespace_stays() {
        let watch = PlaceWatch::new(None).await;
        assert!(watch.netns().unwrap().is_own());
    }

    async fn noticed(watch: &mut PlaceWatch) -> NamespaceChange {
        timeout(SOON, watch.changed()).await.expect("a change is noticed")
    }
}
