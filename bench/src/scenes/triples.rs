//! Triples of slices: one with the daemon, or a placebo, at work, between two in which that process
//! is stopped.

use std::time::Duration;

use anyhow::Result;

use super::slices::{Scene, Slice, Subject, Traffic, step_aside};
use super::wall::{now, sleep_until};

pub const MS: u64 = 1_000_000;
/// The length of a slice with one window in nanoseconds: long enough for all work that the daemon
/// does for the window, and no longer, since a longer slice adds noise.
const SLICE: u64 = 40 * MS;
/// The time in nanoseconds before a slice with the daemon, in which the daemon finishes delayed
/// work.
const SETTLE: u64 = 20 * MS;
/// The time before a slice without the daemon, in nanoseconds.
const STOPPING: u64 = 5 * MS;
/// The time from the beginning of a slice to the end of the window in it, in nanoseconds.
const LEAD: u64 = 5 * MS;
/// The number of times that frames are sent for each triple.
const ATTEMPTS: usize = 5;

/// The moments at which slices begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Slices around the multiples of this many nanoseconds since the Unix epoch, at which windows
    /// end.
    Around(u64),
    /// Slices one after the other, each with the daemon for this many nanoseconds.
    Anywhere(u64),
}

/// A slice of time with the daemon, between two slices without the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Triple {
    pub before: Slice,
    pub with: Slice,
    pub after: Slice,
}

impl Triple {
    /// Returns the fraction of the packets that are missing.
    pub fn loss(&self) -> f64 {
        1.0 - self.with.rate() / f64::midpoint(self.before.rate(), self.after.rate())
    }

    /// Returns the fraction by which a packet costs more.
    pub fn more(&self) -> f64 {
        self.with.per_packet() / f64::midpoint(self.before.per_packet(), self.after.per_packet())
            - 1.0
    }

    /// Tells whether each slice has packets. A slice has none if another process had the CPU.
    pub fn has_packets(&self) -> bool {
        [self.before, self.with, self.after]
            .iter()
            .all(|slice| slice.packets > 0.0)
    }
}

/// Measures triples until all frames are sent. Returns them and the number of frames.
pub fn measure(
    scene: &Scene,
    subject: &Subject<'_>,
    place: Place,
    duration: Duration,
) -> Result<(Vec<Triple>, u64)> {
    std::thread::scope(|scope| {
        // Neither the caller's thread nor the threads that it starts are pinned.
        let measuring = scope.spawn(|| {
            step_aside()?;
            let (mut triples, mut sent) = (Vec::new(), 0);
            // Frames end too early if other work slowed down the trial of their rate.
            for _ in 0..ATTEMPTS {
                sent += one_sending(scene, subject, place, duration, &mut triples)?;
                if !triples.is_empty() {
                    break;
                }
            }
            Ok((triples, sent))
        });
        measuring
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Measures triples until all frames are sent. Returns the number of frames.
fn one_sending(
    scene: &Scene,
    subject: &Subject<'_>,
    place: Place,
    duration: Duration,
    triples: &mut Vec<Triple>,
) -> Result<u64> {
    let traffic = scene.send(duration, subject)?;
    subject.pause();
    loop {
        let triple = match place {
            Place::Around(interval) => around(subject, &traffic, interval)?,
            Place::Anywhere(length) => anywhere(subject, &traffic, length)?,
        };
        match triple {
            Some(triple) => triples.push(triple),
            None => break,
        }
    }
    subject.resume();
    traffic.join()
}

/// Measures a slice around the next multiple. Returns `None` if the frames ended.
fn around(subject: &Subject<'_>, traffic: &Traffic, interval: u64) -> Result<Option<Triple>> {
    let earlier = LEAD + SETTLE + SLICE;
    let end = (now() + earlier + STOPPING).next_multiple_of(interval);
    sleep_until(end - earlier);
    let before = traffic.slice(end - earlier + SLICE)?;
    subject.resume();
    sleep_until(end - LEAD);
    let with = traffic.slice(end - LEAD + SLICE)?;
    subject.pause();
    sleep_until(now() + STOPPING);
    let after = traffic.slice(now() + SLICE)?;
    Ok(triple(before, with, after))
}

/// Measures a slice of this length from now on. Returns `None` if the frames ended.
fn anywhere(subject: &Subject<'_>, traffic: &Traffic, length: u64) -> Result<Option<Triple>> {
    sleep_until(now() + STOPPING);
    let before = traffic.slice(now() + length / 2)?;
    subject.resume();
    sleep_until(now() + SETTLE);
    let with = traffic.slice(now() + length)?;
    subject.pause();
    sleep_until(now() + STOPPING);
    let after = traffic.slice(now() + length / 2)?;
    Ok(triple(before, with, after))
}

fn triple(before: Option<Slice>, with: Option<Slice>, after: Option<Slice>) -> Option<Triple> {
    Some(Triple {
        before: before?,
        with: with?,
        after: after?,
    })
}

/// Returns the multiples of an interval from the first slice to the last.
pub fn multiples(interval: u64, triples: &[Triple]) -> Vec<u64> {
    let (Some(first), Some(last)) = (triples.first(), triples.last()) else {
        return Vec::new();
    };
    let first = first.before.from.next_multiple_of(interval);
    (first..last.after.to).step_by(interval as usize).collect()
}
