//! The paced sender, which is never faster than the receiving end.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Frame, PacketSocket, Spread};
use crate::netns::Namespace;

/// The number of frames sent before the sender waits for the other end: a quarter of a veth's ring.
const BURST: u64 = 64;
/// The time without progress after which the sender gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time for which the sender leaves the processor to the receiver.
const PAUSE: Duration = Duration::from_micros(20);

/// A sender of frames in bursts. The next burst begins when the other end has taken the last one,
/// however slow it is, so that no ring overflows. `Generator` is ten times as fast and relies on
/// the receiver's keeping up.
#[derive(Debug)]
pub struct PacedSender {
    socket: PacketSocket,
    interface: String,
    /// `/proc/net/dev` of the interface's namespace.
    devices: File,
    frame: Frame,
    spread: Spread,
    /// The number of packets sent so far; the next run continues the spread.
    sent: u64,
}

impl PacedSender {
    /// Makes a sender for `interface` of `namespace`. On a veth pair the packets appear at the
    /// *other* end.
    pub fn new(
        namespace: &Namespace,
        interface: &str,
        frame: Frame,
        spread: Spread,
    ) -> Result<Self> {
        spread.check()?;
        let (socket, devices) = namespace.enter(|| {
            let devices = File::open("/proc/thread-self/net/dev")
                .context("open /proc/thread-self/net/dev")?;
            anyhow::Ok((PacketSocket::open(interface)?, devices))
        })??;
        Ok(Self {
            socket,
            interface: interface.to_owned(),
            devices,
            frame,
            spread,
            sent: 0,
        })
    }

    /// Sends exactly `count` packets and returns when the other end has taken all.
    pub fn send(&mut self, count: u64) -> Result<()> {
        let goal = self.sent + count;
        // A packet that another program sends from the interface makes a burst larger by one.
        let before = self.taken()? - self.sent;
        while self.sent < goal {
            for _ in 0..BURST.min(goal - self.sent) {
                let (address, port) = self.spread.source(self.sent);
                let frame = self.frame.from_source(address, port);
                self.socket
                    .send(&frame)
                    .with_context(|| format!("send packet {}", self.sent + 1))?;
                self.sent += 1;
            }
            self.wait_until_taken(before + self.sent)?;
        }
        Ok(())
    }

    /// Returns the number of packets sent since [`PacedSender::new`].
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn wait_until_taken(&self, goal: u64) -> Result<()> {
        let mut progress = (self.taken()?, Instant::now());
        while progress.0 < goal {
            ensure!(
                progress.1.elapsed() < PATIENCE,
                "{} packets are on their way from {}, and none of them was taken for {PATIENCE:?}",
                goal - progress.0,
                self.interface
            );
            thread::sleep(PAUSE);
            let taken = self.taken()?;
            if taken > progress.0 {
                progress = (taken, Instant::now());
            }
        }
        Ok(())
    }

    /// Returns the number of packets that have left the interface. Those of a veth whose peer polls
    /// (native XDP, GRO) count as having left when the peer has handled them.
    fn taken(&self) -> Result<u64> {
        let mut text = vec![0; 1 << 16];
        let length = self
            .devices
            .read_at(&mut text, 0)
            .context("read /proc/net/dev")?;
        let text = String::from_utf8_lossy(&text[..length]);
        for line in text.lines() {
            if let Some((name, numbers)) = line.split_once(':')
                && name.trim() == self.interface
            {
                // The line has eight columns for received packets, then bytes and packets that were
                // sent.
                let packets = numbers
                    .split_whitespace()
                    .nth(9)
                    .context("a line of /proc/net/dev is short")?;
                return Ok(packets.parse()?);
            }
        }
        bail!("interface {} is gone", self.interface)
    }
}
