//! A wait for events, by epoll.

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
    pub fn new(fds: impl IntoIterator<Item = Arc<OwnedFd>>) -> io::Result<Self> {
        let mut waiter = Self(Vec::new());
        waiter.wait_for(fds)?;
        Ok(waiter)
    }

    /// Replaces the rings that this waiter watches with `fds`. Rings that are already registered
    /// stay registered and keep their readiness.
    pub fn wait_for(&mut self, fds: impl IntoIterator<Item = Arc<OwnedFd>>) -> io::Result<()> {
        let mut before = std::mem::take(&mut self.0);
        for fd in fds {
            let known = before
                .iter()
                .position(|known| Arc::ptr_eq(known.get_ref(), &fd));
            self.0.push(match known {
                Some(known) => before.swap_remove(known),
                None => {
                    // SAFETY: the descriptor is owned, so it stays open as long as it is
                    // registered.
                    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
                        .map_err(io::Error::from)?
                }
            });
        }
        Ok(())
    }

    /// Waits until any ring becomes readable. A ring that has become readable since the last call
    /// counts.
    pub async fn readable(&self) {
        std::future::poll_fn(|context| {
            let mut any = Poll::Pending;
            for fd in &self.0 {
                if let Poll::Ready(ready) = fd.poll_read_ready(context) {
                    // The readiness is cleared before the ring is read: a later event sets it
                    // again.
                    ready.into_iter().for_each(|mut guard| guard.clear_ready());
                    any = Poll::Ready(());
                }
            }
            any
        })
        .await;
    }
}
