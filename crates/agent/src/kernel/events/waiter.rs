//! Waiting for events by epoll.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The descriptors of one map's rings, registered with the runtime that made it.
#[derive(Debug)]
pub struct Waiter(Vec<AsyncFd<Arc<OwnedFd>>>);

impl Waiter {
    pub(super) fn new(fds: impl IntoIterator<Item = Arc<OwnedFd>>) -> io::Result<Self> {
        let register = |fd| {
            // SAFETY: the descriptor is owned, so it stays open as long as it is registered.
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
        };
        fds.into_iter().map(register).collect::<io::Result<_>>().map(Self)
    }

    /// Until any of them has become readable since the last call.
    pub async fn readable(&self) {
        std::future::poll_fn(|context| {
            let mut any = Poll::Pending;
            for fd in &self.0 {
                if let Poll::Ready(ready) = fd.poll_read_ready(context) {
                    // Cleared before the ring is read: what comes later makes it readable again.
                    ready.into_iter().for_each(|mut guard| guard.clear_ready());
                    any = Poll::Ready(());
                }
            }
            any
        })
        .await;
    }
}
