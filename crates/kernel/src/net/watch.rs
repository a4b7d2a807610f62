//! A watch of interfaces that are added, removed and renamed, in namespaces that may themselves be
//! added and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval};

use crate::net::netns::Netns;
use crate::net::rtnl::socket::{self, Link, Message, NetlinkSocket};

/// The time between two checks of the namespace at a path. No notification reports that another
/// namespace is at the path.
const LOOK: Duration = Duration::from_millis(250);

/// The changes since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkChanges {
    /// Indices of interfaces that were deleted or moved away, even if an interface of that name and
    /// index exists again by now. BPF links at a deleted interface are dead (`ENOLINK`), links at a
    /// moved interface continue to work until they are detached, and clsact filters have ended in
    /// both cases.
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
        Self {
            missed: true,
            links: true,
            ..Self::default()
        }
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
    /// Watches the namespace that `find` returns, from now on. Call this in a runtime. A list that
    /// is made after this call misses no change. Work that may block runs on another thread.
    async fn open(find: impl FnOnce() -> io::Result<Netns> + Send + 'static) -> io::Result<Self> {
        let (netns, socket, known) = elsewhere(move || {
            let netns = find()?;
            let groups = libc::RTMGRP_LINK | libc::RTMGRP_TC;
            let socket = NetlinkSocket::subscribe(&netns, groups as u32)?;
            let known = socket::list(&netns)?;
            Ok((netns, socket, known))
        })
        .await?;
        // SAFETY: the socket owns its descriptor, which stays open and the same as long as it is
        // registered.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self {
            netns,
            socket,
            known,
            overflowed: false,
        })
    }

    /// Waits until an interface is new, removed or renamed, or until filters have changed, and
    /// reads all messages so far. Changes of flags and addresses do not count. A drop of the future
    /// loses no change.
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
            // The loop ends when a read would block: a later message makes the socket readable
            // again.
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

/// Runs work that may block on a path, or on the kernel's lock of all links (`rtnl_mutex`), on a
/// thread for blocking work.
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
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

/// A watch of the links in the namespace that is at a path at any time, or in the daemon's own
/// namespace.
#[derive(Debug)]
pub struct PlaceWatch {
    path: Option<PathBuf>,
    state: Result<LinkWatch, io::Error>,
}

impl PlaceWatch {
    /// Watches the namespace at `path`; `None` means the daemon's own namespace. Call this in a
    /// runtime.
    pub async fn new(path: Option<&Path>) -> Self {
        Self {
            path: path.map(Path::to_owned),
            state: open(path).await,
        }
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

    /// Tells whether another namespace is at the path than before. A check that fails counts as no
    /// change.
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
                self.state
                    .as_ref()
                    .map_or_else(|now| now.to_string() != before, |_| true)
            }
        }
    }
}

async fn open(path: Option<&Path>) -> io::Result<LinkWatch> {
    let path = path.map(Path::to_owned);
    LinkWatch::open(move || path.as_deref().map_or_else(Netns::own, Netns::open)).await
}

#[cfg(test)]
mod tests;
