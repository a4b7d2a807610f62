//! A way between two interfaces that takes time and loses known packets, for kernels without netem.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

use crate::netns::Namespace;
use crate::traffic::PacketSocket;

const SYN: u8 = 2;
const FIN: u8 = 1;
const ACK: u8 = 16;
/// The longest time until a thread looks whether it must end.
const LOOK: Duration = Duration::from_millis(20);

/// The losses and delays of TCP packets on the way there. The way back loses nothing.
#[derive(Clone, Copy, Debug)]
pub struct WayLosses {
    /// One of this many segments with new data is lost. Retransmissions arrive.
    pub one_in: u64,
    /// After this many segments no more losses happen.
    pub until: u64,
}

/// The counts on the way to the receiver.
#[derive(Debug, Default)]
pub struct Passed {
    pub lost: AtomicU64,
    /// Lost segments that were sent again before anything newer arrived, as happens when the TCP
    /// window closes after them. The receiver can't see these gaps.
    pub hidden: AtomicU64,
    /// Segments that begin a connection, and arrived.
    pub attempts: AtomicU64,
    /// Packets that have come in, and that have left or were lost, in both directions.
    came: AtomicU64,
    done: AtomicU64,
}

/// Two threads that hold each packet for a time. Drop ends them.
#[derive(Debug)]
pub struct LossyWay {
    pub passed: Arc<Passed>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl LossyWay {
    /// Connects two interfaces of a namespace; `delay` is that of one direction. The frames that
    /// arrive are written to `capture`.
    pub fn between(
        namespace: &Namespace,
        [from, to]: [&str; 2],
        delay: Duration,
        losses: WayLosses,
        capture: &Path,
    ) -> Result<Self> {
        let passed = Arc::new(Passed::default());
        let ends = Arc::new(AtomicBool::new(false));
        let capture = Arc::new(Mutex::new(Capture::create(capture)?));
        let mut threads = Vec::new();
        for (from, to, losses) in [(from, to, Some(losses)), (to, from, None)] {
            let open = || anyhow::Ok((PacketSocket::receiving(from)?, PacketSocket::open(to)?));
            let (arriving, leaving) = namespace.enter(open)??;
            let lane = Lane {
                arriving,
                leaving,
                delay,
                loser: losses.map(|losses| Loser {
                    losses,
                    seen: 0,
                    flows: HashMap::new(),
                }),
                passed: Arc::clone(&passed),
                capture: Arc::clone(&capture),
                held: VecDeque::new(),
            };
            let ends = Arc::clone(&ends);
            let run = move || {
                lane.run(&ends)
                    .expect("the way between two interfaces stays open");
            };
            threads.push(
                std::thread::Builder::new()
                    .name(format!("way-{from}"))
                    .spawn(run)?,
            );
        }
        Ok(Self {
            passed,
            ends,
            threads,
        })
    }

    /// The number of packets that have come in, if no packet is in transit.
    pub fn at_rest(&self) -> Option<u64> {
        let done = self.passed.done.load(Ordering::SeqCst);
        (self.passed.came.load(Ordering::SeqCst) == done).then_some(done)
    }
}

impl Drop for LossyWay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // A test that has failed already must not panic again.
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the way has failed"
            );
        }
    }
}

/// One direction.
struct Lane {
    arriving: PacketSocket,
    leaving: PacketSocket,
    delay: Duration,
    loser: Option<Loser>,
    passed: Arc<Passed>,
    capture: Arc<Mutex<Capture>>,
    held: VecDeque<(Instant, Vec<u8>)>,
}

impl Lane {
    fn run(mut self, ends: &AtomicBool) -> io::Result<()> {
        // SAFETY: no pointers. Without this call, the kernel may wake the thread 50 µs late.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let mut buffer = vec![0; 1 << 16];
        while !ends.load(Ordering::SeqCst) {
            self.release()?;
            let next = self
                .held
                .front()
                .map(|(due, _)| due.saturating_duration_since(Instant::now()));
            self.arriving
                .wait(next.map_or(LOOK, |next| next.min(LOOK)))?;
            while let Some(length) = self.arriving.receive(&mut buffer)? {
                self.passed.came.fetch_add(1, Ordering::SeqCst);
                let frame = &buffer[..length];
                if self
                    .loser
                    .as_mut()
                    .is_some_and(|loser| loser.loses(frame, &self.passed))
                {
                    self.passed.done.fetch_add(1, Ordering::SeqCst);
                } else {
                    self.held
                        .push_back((Instant::now() + self.delay, frame.to_vec()));
                }
            }
        }
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        while let Some((_, frame)) = self.held.pop_front_if(|(due, _)| *due <= Instant::now()) {
            // A full queue empties soon.
            while let Err(error) = self.leaving.send(&frame) {
                if error.raw_os_error() != Some(libc::ENOBUFS) {
                    return Err(error);
                }
                std::thread::yield_now();
            }
            self.capture
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(&frame)?;
            self.passed.done.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

struct Loser {
    losses: WayLosses,
    /// The segments with something new so far.
    seen: u64,
    /// The state of each flow, by its ports.
    flows: HashMap<[u8; 4], Flow>,
}

struct Flow {
    /// The number after the last byte that was sent.
    end: u32,
    /// The number after a lost segment while nothing newer has arrived.
    lost: Option<u32>,
}

impl Loser {
    fn loses(&mut self, frame: &[u8], passed: &Passed) -> bool {
        let Some(Segment {
            ports,
            end,
            length,
            flags,
        }) = Segment::of(frame)
        else {
            return false;
        };
        let known = self.flows.get(&ports);
        if length > 0 && known.is_none_or(|flow| is_behind(end, flow.end)) {
            self.seen += 1;
            let is_lost =
                self.seen.is_multiple_of(self.losses.one_in) && self.seen <= self.losses.until;
            self.flows.insert(
                ports,
                Flow {
                    end,
                    lost: is_lost.then_some(end),
                },
            );
            if is_lost {
                passed.lost.fetch_add(1, Ordering::SeqCst);
                return true;
            }
        } else if let Some(flow) = self.flows.get_mut(&ports)
            && length > 0
            && flow.lost.take_if(|lost| !is_behind(*lost, end)).is_some()
        {
            passed.hidden.fetch_add(1, Ordering::SeqCst);
        }
        if flags & SYN != 0 && flags & ACK == 0 {
            passed.attempts.fetch_add(1, Ordering::SeqCst);
        }
        false
    }
}

/// Tells whether a sequence number comes after another one.
fn is_behind(number: u32, other: u32) -> bool {
    number.wrapping_sub(other).cast_signed() > 0
}

/// A segment of TCP over IPv4.
struct Segment {
    ports: [u8; 4],
    /// The sequence number after the segment.
    end: u32,
    /// The sequence numbers in it: data, SYN and FIN.
    length: u32,
    flags: u8,
}

impl Segment {
    fn of(frame: &[u8]) -> Option<Self> {
        let ip = frame
            .strip_prefix(frame.first_chunk::<12>()?)?
            .strip_prefix(&[8, 0])?;
        if *ip.get(9)? != 6 {
            return None;
        }
        let header = usize::from(ip[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = ip.get(header..total)?;
        let (ports, number) = (
            *tcp.first_chunk()?,
            u32::from_be_bytes(*tcp[4..].first_chunk()?),
        );
        let flags = *tcp.get(13)?;
        let data = tcp.len().checked_sub(usize::from(tcp[12] >> 4) * 4)?;
        let length = data as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        Some(Self {
            ports,
            end: number.wrapping_add(length),
            length,
            flags,
        })
    }
}

/// A file of pcap with times in nanoseconds.
struct Capture(File);

impl Capture {
    fn create(path: &Path) -> Result<Self> {
        let mut file = File::create(path).with_context(|| path.display().to_string())?;
        let header = [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 1 << 16, 1];
        file.write_all(&header.map(u32::to_ne_bytes).concat())?;
        Ok(Self(file))
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(io::Error::other)?;
        let length = frame.len() as u32;
        let header = [now.as_secs() as u32, now.subsec_nanos(), length, length];
        self.0
            .write_all(&[&header.map(u32::to_ne_bytes).concat(), frame].concat())
    }
}
