//! Sends packets, and measures the processor time of each packet.

use anyhow::Result;
use twinprobe_tests::measure::{Sample, own_processor_seconds};
use twinprobe_tests::traffic::{Generator, Spread};

use crate::frame::site::Site;

/// The calls with a single packet before any measured call.
const TRIALS: u64 = 4;

/// The kernel's generator. One CPU sends and receives.
#[derive(Debug)]
pub struct Sender {
    generator: Generator,
    /// The processor seconds of a call that sends next to nothing: each call takes memory first,
    /// for about 24 ms.
    call: f64,
    /// The packets sent so far.
    pub sent: u64,
}

impl Sender {
    pub fn new(site: &Site, spread: Spread) -> Result<Self> {
        let mut sender = Self {
            generator: site.traffic(spread)?,
            call: 0.0,
            sent: 0,
        };
        let mut calls = Sample::default();
        for trial in 0..TRIALS {
            let seconds = sender.send(1)?;
            // The first call takes longer than the others.
            if trial > 0 {
                calls.add(seconds);
            }
        }
        sender.call = calls.median();
        Ok(sender)
    }

    /// Sends this many packets. Returns the processor seconds that sending and receiving them took,
    /// without those of an empty call. No other thread of this process must be at work meanwhile.
    pub fn send(&mut self, packets: u64) -> Result<f64> {
        let before = own_processor_seconds()?;
        self.generator.send(packets)?;
        self.sent += packets;
        // Because of noise, a call may seem shorter than an empty one.
        Ok((own_processor_seconds()? - before - self.call).max(1e-9))
    }

    /// Sends this many packets. Returns the million packets per processor second.
    pub fn rate(&mut self, packets: u64) -> Result<f64> {
        Ok(packets as f64 / self.send(packets)? / 1e6)
    }
}
