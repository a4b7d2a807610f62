//! The packets of one direction that a replayed program gets.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use twinprobe_ebpf_common::hook::{Direction, Hook, ProgramKind, Verdict};

use crate::load::direction::LoadedDirection;
use crate::load::maps::TwinMap;
use crate::read::events::event_map::EventReader;
use crate::sys::call::KernelError;
use crate::sys::map::BPF_MAP_TYPE_PROG_ARRAY;
use crate::sys::prog;
use crate::trial::replay::control::{BATCH, Control, LONGEST, ROOM};
use crate::trial::replay::driver::Driver;
use crate::trial::replay::tap::Tap;

/// The shortest packet that the kernel runs a program on: an Ethernet header, in bytes.
pub const SHORTEST: usize = 14;
/// The longest packet for which the driver's frame has room in any case, in bytes: a page also
/// holds 256 bytes before the frame, and the kernel's structure after it.
const LONGEST_XDP: usize = 3 << 10;
/// The longest packet that an interface gets, in bytes. It is about as long as the longest packet
/// that a program for several buffers can get in a run.
const LONGEST_RECEIVED: usize = 70 << 10;
/// The size in bytes of a ring that loses no event, although the daemon empties it only after each
/// run.
const RING: u64 = (BATCH as u64) << 13;
const SEED: u64 = 0x2545_f491_4f6c_dd1d;
/// The time below which a run is short, so that the next run may have twice as many packets. Runs
/// stay short because a replay can stop only between two runs.
const SHORT: Duration = Duration::from_millis(5);
/// The size of the frame that a driver begins with, in bytes.
const FRAME: usize = 64;
/// The protocols of the VLAN tags that the kernel takes out of a packet before TC programs see it,
/// in the order of bytes in the packet.
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// A loaded program, with the packets that it gets in its next run.
#[derive(Debug)]
pub struct Lane {
    hook: Hook,
    loaded: LoadedDirection,
    control: Control,
    /// The program that passes on the packets; `None` on kernels that do not allow such a program.
    /// Then each packet takes a call of its own.
    driver: Option<Driver>,
    /// The interface for packets that are too long for a run. It is made for the first such packet.
    interface: LongPacketInterface,
    /// The number of packets of the next run, and the most that a run may have.
    next: usize,
    most: usize,
    rings: Vec<EventReader>,
    batch: WaitingPackets,
    /// The state of the random numbers by which packets are sampled. A replay uses the same numbers
    /// each time.
    random: u64,
    pub counts: Counts,
}

/// The interface for long packets, which only a program for packets of a single buffer needs.
#[derive(Debug)]
enum LongPacketInterface {
    NotTried,
    There(Tap),
    /// The daemon lacks the rights or the means to make an interface.
    Missing,
}

/// The packets that wait for the next run.
#[derive(Debug)]
struct WaitingPackets {
    packets: usize,
    /// The number of bytes of the control memory that packets occupy.
    bytes: usize,
    group: Group,
    frame: [u8; FRAME],
}

/// The fields that all packets of a run share, because only the kernel sets them: the protocol, and
/// the VLAN tag outside of the packet's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Group {
    protocol: [u8; 2],
    tag: [u16; 2],
}

/// The outcomes of the packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// The packets that the program has seen.
    pub seen: u64,
    pub too_short: u64,
    /// The packets that are too long for a run of a program on this kernel.
    pub too_long: u64,
    /// The packets that a program for packets of a single buffer sees completely only through an
    /// interface, while such an interface could not be made.
    pub no_interface: u64,
    /// The packets that the dispatcher would have left out, because the configuration asks for a
    /// sample.
    pub not_sampled: u64,
    /// The events that the program has written to the maps of event metrics.
    pub events: u64,
    /// The duration of the runs, including the time that the driver takes to pass on the packets.
    pub ran: Duration,
}

impl Lane {
    /// Prepares a program that was loaded with the clock of `control`.
    pub fn new(loaded: LoadedDirection, control: Control) -> Result<Self, KernelError> {
        let attach = loaded.plan.attach;
        let driver = Driver::load(
            attach.hook,
            loaded.plan.kind(),
            control.map(),
            loaded.programs.of_twin(0).as_fd(),
        );
        let driver = driver.inspect_err(|error| {
            tracing::debug!(%error, "packets are replayed one by one");
        });
        // A program that changes packets would change the frame of the next packet. A program with
        // tail calls of its own needs all tail calls that the kernel allows for one run.
        let calls_on = loaded
            .plan
            .maps
            .iter()
            .any(|map| map.spec.map_type == BPF_MAP_TYPE_PROG_ARRAY);
        let alone = attach.verdict == Verdict::Enforce || calls_on;
        let rings = loaded.maps.iter().filter_map(|map| match map {
            TwinMap::Events(map) => Some(map.open()),
            TwinMap::Shared(_) | TwinMap::Private(_) | TwinMap::Unread => None,
        });
        let rings = rings.collect::<Result<Vec<_>, _>>()?;
        let is_small = rings.iter().any(|ring| ring.room() < RING);
        Ok(Self {
            hook: attach.hook,
            rings,
            loaded,
            control,
            driver: driver.ok(),
            interface: LongPacketInterface::NotTried,
            next: 1,
            most: if alone || is_small { 1 } else { BATCH },
            batch: WaitingPackets {
                packets: 0,
                bytes: 0,
                group: Group::default(),
                frame: [0; FRAME],
            },
            random: SEED,
            counts: Counts::default(),
        })
    }

    /// Returns the program with its maps.
    pub const fn loaded(&self) -> &LoadedDirection {
        &self.loaded
    }

    /// Hands a packet to the program, perhaps together with later ones: see [`Self::flush`].
    /// `length` is the packet's length on the link, in bytes: if the capture cut the packet off,
    /// zeros take the place of the rest. `time_ns` is the time that the program's clock shows.
    pub fn push(&mut self, time_ns: u64, bytes: &[u8], length: usize) -> io::Result<()> {
        if length < SHORTEST {
            self.counts.too_short += 1;
            return Ok(());
        }
        if !self.is_sampled() {
            self.counts.not_sampled += 1;
            return Ok(());
        }
        let is_tc = self.hook.kind().has_skb();
        let longest = if is_tc { LONGEST } else { LONGEST_XDP };
        if !is_tc && length > longest && !self.loaded.plan.frags {
            self.flush()?;
            return self.receive(time_ns, bytes, length);
        }
        if self.driver.is_none() || !is_tc && length > longest {
            self.flush()?;
            return self.run_alone(time_ns, bytes, length);
        }
        let (group, pieces) = if is_tc {
            split(bytes)
        } else {
            (Group::default(), [bytes, &[][..]])
        };
        let length = length.max(bytes.len()) - (bytes.len() - pieces[0].len() - pieces[1].len());
        if length > longest {
            self.counts.too_long += 1;
            return Ok(());
        }
        let batch = &self.batch;
        if batch.packets >= self.next
            || batch.bytes >= ROOM
            || batch.packets > 0 && batch.group != group
        {
            self.flush()?;
        }
        let batch = &mut self.batch;
        if batch.packets == 0 {
            batch.group = group;
            batch.frame = [0; FRAME];
            let mut frame = &mut batch.frame[..];
            for piece in pieces {
                let (part, rest) = frame.split_at_mut(piece.len().min(frame.len()));
                part.copy_from_slice(&piece[..part.len()]);
                frame = rest;
            }
        }
        self.control.set_packet(batch.bytes, pieces, length);
        let kind = match (self.hook.kind(), Direction::from(self.hook)) {
            (ProgramKind::Tc, Direction::Ingress) => kind(bytes),
            (ProgramKind::Xdp, _) | (_, Direction::Egress) => 0,
        };
        self.control
            .set_record(batch.packets, time_ns, batch.bytes, length, kind);
        batch.packets += 1;
        batch.bytes += length.next_multiple_of(8);
        Ok(())
    }

    /// Lets the program see all packets that were pushed so far, and counts its events.
    pub fn flush(&mut self) -> io::Result<()> {
        let packets = std::mem::take(&mut self.batch.packets);
        self.batch.bytes = 0;
        if packets > 0
            && let Some(driver) = &self.driver
        {
            self.control.start(packets, self.batch.group.tag);
            let started = Instant::now();
            driver.run(&self.batch.frame)?;
            let took = started.elapsed();
            self.counts.ran += took;
            self.next = if took < SHORT {
                self.most.min(2 * self.next)
            } else {
                (self.next / 2).max(1)
            };
            let seen = (0..packets)
                .filter(|record| self.control.is_seen(*record))
                .count();
            self.counts.seen += seen as u64;
            self.counts.too_long += (packets - seen) as u64;
            self.drain();
        }
        Ok(())
    }

    /// Runs the program on one packet, without the driver.
    fn run_alone(&mut self, time_ns: u64, bytes: &[u8], length: usize) -> io::Result<()> {
        self.control.set_time(time_ns);
        let mut packet = bytes.to_vec();
        packet.resize(length, 0);
        let started = Instant::now();
        let run = prog::prog_test_run(self.program(), &packet, &mut [], &mut []);
        self.counts.ran += started.elapsed();
        match run {
            Ok(_) => self.counts.seen += 1,
            Err(error) if is_about_length(&error) => self.counts.too_long += 1,
            Err(error) => return Err(error),
        }
        self.drain();
        Ok(())
    }

    /// Lets an interface receive a packet that the program sees whole only there.
    fn receive(&mut self, time_ns: u64, bytes: &[u8], length: usize) -> io::Result<()> {
        if length > LONGEST_RECEIVED {
            self.counts.too_long += 1;
            return Ok(());
        }
        if matches!(self.interface, LongPacketInterface::NotTried) {
            let made = Tap::open(self.control.map(), self.program());
            let made = made.inspect_err(|error| {
                tracing::warn!(%error, "no interface can be made for long packets of a replay: they are left out");
            });
            self.interface = made.map_or(LongPacketInterface::Missing, LongPacketInterface::There);
        }
        let LongPacketInterface::There(tap) = &mut self.interface else {
            self.counts.no_interface += 1;
            return Ok(());
        };
        self.control.set_time(time_ns);
        let mut packet = bytes.to_vec();
        packet.resize(length, 0);
        let started = Instant::now();
        let sent = tap.send(&self.control, &packet);
        self.counts.ran += started.elapsed();
        match sent {
            Ok(true) => self.counts.seen += 1,
            Ok(false) => self.counts.too_long += 1,
            Err(error) if is_about_length(&error) => self.counts.too_long += 1,
            Err(error) => return Err(error),
        }
        self.drain();
        Ok(())
    }

    /// Chooses packets as the dispatcher does, but with random numbers of its own (xorshift64).
    fn is_sampled(&mut self) -> bool {
        let Some(one_in) = self.loaded.plan.attach.sample else {
            return true;
        };
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 32) * u64::from(one_in.get())) >> 32 == 0
    }

    fn program(&self) -> BorrowedFd<'_> {
        self.loaded.programs.of_twin(0).as_fd()
    }

    /// Empties the rings of events, which have no other reader.
    fn drain(&mut self) {
        for ring in &mut self.rings {
            ring.read(usize::MAX, |_| self.counts.events += 1);
        }
    }
}

fn is_about_length(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::E2BIG | libc::ENOMEM | libc::EMSGSIZE | libc::ENOSPC)
    )
}

/// Takes the outermost VLAN tag out of a packet, as the kernel does before TC programs see it.
/// Returns the packet's fields outside of its bytes, and the bytes in two pieces.
fn split(bytes: &[u8]) -> (Group, [&[u8]; 2]) {
    let word = |at: usize| -> [u8; 2] {
        bytes
            .get(at..at + 2)
            .map_or([0; 2], |word| [word[0], word[1]])
    };
    let protocol = word(ADDRESSES);
    if TAGS.contains(&protocol) && bytes.len() >= ADDRESSES + TAG + 2 {
        let tag = [
            u16::from_ne_bytes(protocol),
            u16::from_be_bytes(word(ADDRESSES + 2)),
        ];
        let group = Group {
            protocol: kernels(word(ADDRESSES + TAG), word(ADDRESSES + TAG + 2)),
            tag,
        };
        return (group, [&bytes[..ADDRESSES], &bytes[ADDRESSES + TAG..]]);
    }
    (
        Group {
            protocol: kernels(protocol, word(ADDRESSES + 2)),
            tag: [0; 2],
        },
        [bytes, &[]],
    )
}

/// Returns a value that differs between packets to which the kernel gives different protocols.
/// Where the field is the length of an old packet, the kernel only looks at whether the packet
/// continues with ones (`eth_type_trans`).
fn kernels(protocol: [u8; 2], next: [u8; 2]) -> [u8; 2] {
    if protocol[0] >= 0x06 {
        protocol
    } else {
        [0, u8::from(next == [0xff; 2])]
    }
}

/// Returns the type that the kernel gives to a received packet: `PACKET_HOST`, `PACKET_BROADCAST`,
/// `PACKET_MULTICAST`.
fn kind(bytes: &[u8]) -> u32 {
    match bytes {
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, ..] => 1,
        [first, ..] if first & 1 != 0 => 2,
        _ => 0,
    }
}
