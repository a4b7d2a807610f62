//! The generator, which sends an exact number of packets.

use std::{
    fmt, io,
    net::Ipv4Addr,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use aya::{
    Ebpf, TestRun,
    maps::{Array, Map, MapData},
    programs::{TestRunAttrs, TestRunOptions, Xdp},
};

use super::{
    Frame,
    running::{Load, Running},
};
use crate::{
    bpf,
    netns::{Namespace, interface_index, pin_to_cpu},
};

/// The number of frames handed over at once.
///
/// A veth end has a ring of 256 frames, emptied between two batches; further frames are lost
/// without an error. Up to 128, ten million of ten million frames arrived, at 256 up to a quarter
/// was lost (see tests/traffic/README.md).
pub const DEFAULT_BATCH: u32 = 64;
/// The largest batch that the kernel accepts.
pub const MAX_BATCH: u32 = 256;

/// The source addresses and ports of packets: packet n has address `n % addresses` and port `n /
/// addresses % ports` after the base, so that of N packets every flow gets N / (addresses * ports),
/// rounded down or up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    pub addresses: u32,
    pub ports: u32,
    pub base_address: Ipv4Addr,
    pub base_port: u16,
}

impl Default for Spread {
    /// Returns the paper's sources: 256 addresses with 97 ports each, 24,832 sessions.
    fn default() -> Self {
        Self {
            addresses: 256,
            ports: 97,
            base_address: Ipv4Addr::new(198, 18, 0, 0),
            base_port: 1024,
        }
    }
}

impl Spread {
    /// Returns one address and one port.
    pub fn single() -> Self {
        Self {
            addresses: 1,
            ports: 1,
            ..Self::default()
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let Self {
            addresses,
            ports,
            base_address,
            base_port,
        } = *self;
        ensure!(
            addresses > 0 && ports > 0,
            "there is at least one address and one port"
        );
        ensure!(
            u32::from(base_address).checked_add(addresses - 1).is_some(),
            "addresses exceed 255.255.255.255"
        );
        ensure!(
            u32::from(base_port).saturating_add(ports - 1) <= 0xffff,
            "ports exceed 65535"
        );
        Ok(())
    }

    /// Returns the number of pairs of address and port.
    pub fn flows(&self) -> u64 {
        u64::from(self.addresses) * u64::from(self.ports)
    }

    /// Returns the source of packet `number`, counted from 0.
    pub fn source(&self, number: u64) -> (Ipv4Addr, u16) {
        let address = (number % u64::from(self.addresses)) as u32;
        let port = (number / u64::from(self.addresses) % u64::from(self.ports)) as u16;
        (
            (u32::from(self.base_address) + address).into(),
            self.base_port + port,
        )
    }

    /// Returns how many of the first `sent` packets were of the flow with this address and port.
    pub fn expected(&self, address: Ipv4Addr, port: u16, sent: u64) -> u64 {
        let a = u32::from(address).wrapping_sub(u32::from(self.base_address));
        let p = u32::from(port).wrapping_sub(u32::from(self.base_port));
        if a >= self.addresses || p >= self.ports {
            return 0;
        }
        let first = u64::from(p) * u64::from(self.addresses) + u64::from(a);
        sent / self.flows() + u64::from(sent % self.flows() > first)
    }
}

/// The frames to send, and the way of sending.
#[derive(Clone, Debug)]
pub struct GeneratorOptions {
    pub frame: Frame,
    pub spread: Spread,
    /// The number of frames handed over at once, 1 to [`MAX_BATCH`].
    pub batch: u32,
    /// The CPU to send from; on a veth pair it is also the CPU that receives. A thread that moves
    /// leaves the receiving NAPI on the old CPU: if that CPU is busy, the ring overflows.
    pub cpu: Option<usize>,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        Self {
            frame: Frame::default(),
            spread: Spread::default(),
            batch: DEFAULT_BATCH,
            cpu: Some(0),
        }
    }
}

/// A sender of frames out of one interface. Its program in the kernel counts them.
#[derive(Debug)]
pub struct Generator {
    namespace: Namespace,
    options: GeneratorOptions,
    ebpf: Ebpf,
    /// The id of the thread that sends.
    thread: Arc<AtomicI32>,
}

/// An observer of a generator that sends.
pub struct Meter {
    state: Array<MapData, State>,
    thread: Arc<AtomicI32>,
}

impl Generator {
    /// Makes a generator for `interface` of `namespace`. On a veth pair the packets appear at the
    /// *other* end.
    pub fn new(namespace: &Namespace, interface: &str, options: GeneratorOptions) -> Result<Self> {
        let Spread {
            addresses,
            ports,
            base_address,
            base_port,
        } = options.spread;
        ensure!(
            (1..=MAX_BATCH).contains(&options.batch),
            "a batch has 1 to {MAX_BATCH} frames"
        );
        options.spread.check()?;
        let ebpf = namespace.enter(|| {
            let mut defines = options.frame.defines();
            defines.extend([
                format!("IFINDEX={}", interface_index(interface)?),
                format!("ADDRESSES={addresses}"),
                format!("PORTS={ports}"),
                format!("BASE_ADDRESS={}u", u32::from(base_address)),
                format!("BASE_PORT={base_port}"),
            ]);
            let mut ebpf = bpf::load(include_str!("../../bpf/generator.bpf.c"), &defines)?;
            let xdp: &mut Xdp = ebpf
                .program_mut("generate")
                .context("no program")?
                .try_into()?;
            xdp.load().context("load the generator")?;
            anyhow::Ok(ebpf)
        })??;
        Ok(Self {
            namespace: namespace.clone(),
            options,
            ebpf,
            thread: Arc::default(),
        })
    }

    pub fn spread(&self) -> &Spread {
        &self.options.spread
    }

    /// Returns the number of packets sent since [`Generator::new`].
    pub fn sent(&self) -> Result<u64> {
        let state: Array<_, State> = self.ebpf.map("state").context("no state")?.try_into()?;
        Ok(state.get(&0, 0)?.sent)
    }

    /// Lets the next packet come from this address, counted from the first one.
    pub fn continue_at(&mut self, address: u32) -> Result<()> {
        let mut state: Array<_, State> =
            self.ebpf.map_mut("state").context("no state")?.try_into()?;
        let sent = state.get(&0, 0)?.sent;
        Ok(state.set(
            0,
            State {
                sent,
                address,
                port: 0,
            },
            0,
        )?)
    }

    /// Returns an observer that can be used while the generator sends.
    pub fn meter(&self) -> Result<Meter> {
        let Some(Map::Array(state)) = self.ebpf.map("state") else {
            bail!("no state")
        };
        let state = MapData::from_fd(state.fd().as_fd().try_clone_to_owned()?)?;
        Ok(Meter {
            state: Map::Array(state).try_into()?,
            thread: Arc::clone(&self.thread),
        })
    }

    /// Sends exactly `count` packets as fast as possible and returns when all are with the
    /// receiver.
    pub fn send(&mut self, count: u64) -> Result<()> {
        let goal = self.sent()? + count;
        // A call allocates memory for about 24 ms: one call sends all packets, unless a signal
        // interrupts it.
        loop {
            let before = self.sent()?;
            if before == goal {
                return Ok(());
            }
            self.namespace.enter(|| {
                if let Some(cpu) = self.options.cpu {
                    pin_to_cpu(cpu).with_context(|| format!("move to CPU {cpu}"))?;
                }
                // SAFETY: takes nothing and returns a number.
                self.thread
                    .store(unsafe { libc::gettid() }, Ordering::Release);
                self.run((goal - before).min(1 << 31) as u32)
            })??;
            if self.sent()? == before {
                bail!("the kernel ran the generator on no frame");
            }
        }
    }

    /// Sends in the background until it is stopped or the load is done.
    pub fn spawn(self, load: Load) -> Running {
        Running::start(self, load)
    }

    fn run(&self, repeat: u32) -> Result<()> {
        let xdp: &Xdp = self
            .ebpf
            .program("generate")
            .context("no program")?
            .try_into()?;
        let options = TestRunOptions {
            data_in: Some(self.options.frame.bytes()),
            repeat,
            attrs: TestRunAttrs::new().xdp_live_frames(self.options.batch),
            ..TestRunOptions::new()
        };
        xdp.test_run(options).context("run the generator")?;
        Ok(())
    }
}

impl Meter {
    /// Returns the number of packets sent since [`Generator::new`].
    pub fn sent(&self) -> Result<u64> {
        Ok(self.state.get(&0, 0)?.sent)
    }

    /// Returns the processor time of the thread that sends, which must be sending.
    pub fn processor_time(&self) -> Result<Duration> {
        /// The low bits of a thread's clock id, which the kernel forms as `~thread << 3`: the
        /// scheduler's clock (2) of a thread (4).
        const CLOCK_OF_THREAD: i32 = 6;
        let clock = (!self.thread.load(Ordering::Acquire) << 3) | CLOCK_OF_THREAD;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a live structure that the call fills.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } < 0 {
            return Err(io::Error::last_os_error()).context("ask for a thread's time");
        }
        Ok(Duration::new(
            time.tv_sec.unsigned_abs(),
            time.tv_nsec as u32,
        ))
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct State {
    sent: u64,
    address: u32,
    port: u32,
}

// SAFETY: plain integers without padding.
unsafe impl aya::Pod for State {}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            addresses,
            ports,
            base_address,
            base_port,
        } = self;
        write!(
            f,
            "{addresses} addresses from {base_address}, {ports} ports from {base_port}"
        )
    }
}
