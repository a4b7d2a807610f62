//! A consumer by aya, in a process of its own: this program with `--aya-consumer`.

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use aya::maps::{Map, MapData, RingBuf};

use super::ledger::{Event, Ledger, SIZE, process_time};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Consumes a pinned ring until SIGTERM, as `consumer.c` does by libbpf, and reports the received
/// events on stderr.
pub fn consume(pin: &Path, checks: bool) -> Result<()> {
    let mut ring = RingBuf::try_from(Map::RingBuf(MapData::from_pin(pin)?))?;
    // SAFETY: the handler only stores to an atomic.
    let before = unsafe { libc::signal(libc::SIGTERM, stop as *const () as libc::sighandler_t) };
    ensure!(before != libc::SIG_ERR, "SIGTERM can't be handled");
    eprintln!("ready");
    let (mut ledger, begun) = (Ledger::default(), process_time());
    loop {
        let last = STOP.load(Ordering::Relaxed);
        while let Some(item) = ring.next() {
            if checks {
                ledger.check(&Event::from_bytes(&item)?);
            } else {
                let fields = &item[item.len() - SIZE..];
                let word =
                    |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| fields[at + byte]));
                ledger.count(word(36) & 0xffff_ffff, word(0));
            }
        }
        if last {
            break;
        }
        let mut wait = libc::pollfd {
            fd: ring.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live structure. A signal ends the wait.
        unsafe { libc::poll(&raw mut wait, 1, 100) };
    }
    let cpu = process_time() - begun;
    eprintln!("{}", ledger.summary(cpu));
    Ok(())
}
