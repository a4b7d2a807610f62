//! Counted packets on any kernel. An ordinary socket sends them, because the kernel's generator of
//! frames needs Linux 5.18. It sends no faster than the packets are counted, so that no queue
//! overflows.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use twinprobe_tests::Namespace;
use twinprobe_tests::traffic::{Frame, PacketSocket};
use twinprobe_tests::wait::PATIENCE;

/// The number of source addresses, which packets have in turn, beginning with 198.18.0.0.
pub const ADDRESSES: u64 = 50;
/// The number of source ports, which packets have in turn.
const PORTS: u64 = 97;
/// The largest number of packets sent and not yet counted: less than the 256 that a veth's ring has
/// room for.
const IN_FLIGHT: u64 = 128;

/// The offset of the source address in the default frame; `PORT` is that of the port.
const ADDRESS: usize = 26;
const PORT: usize = 34;

/// Sends `packets` from `interface` and repeatedly calls `read`. `read` returns the number of
/// packets since its last call. Returns the number of calls once all packets are found.
pub fn send_and_count(
    namespace: &Namespace,
    interface: &str,
    packets: u64,
    mut read: impl FnMut() -> u64,
) -> Result<u64> {
    let socket = namespace.enter(|| PacketSocket::open(interface))??;
    let flow = Flow::default();
    thread::scope(|scope| {
        // The sender must not wait for lost packets, nor for a reading that has panicked.
        let released = flow.release_on_drop();
        let sender = scope.spawn(|| send(&socket, packets, &flow));
        // Emulated machines are slow, so there is no limit in total.
        let (mut counted, mut readings, mut progress) = (0, 0, Instant::now());
        while counted < packets
            && progress.elapsed() < PATIENCE
            && !(sender.is_finished() && readings > packets)
        {
            let found = read();
            if found > 0 {
                progress = Instant::now();
            }
            counted += found;
            readings += 1;
            flow.set(counted);
        }
        drop(released);
        sender
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ensure!(
            counted == packets,
            "{counted} of {packets} packets counted in {readings} readings"
        );
        Ok(readings)
    })
}

fn send(socket: &PacketSocket, packets: u64, flow: &Flow) -> Result<()> {
    let mut frame = Frame::default().bytes().to_vec();
    for number in 0..packets {
        flow.wait_for((number + 1).saturating_sub(IN_FLIGHT));
        let address = u32::from_be_bytes([198, 18, 0, 0]) + (number % ADDRESSES) as u32;
        frame[ADDRESS..ADDRESS + 4].copy_from_slice(&address.to_be_bytes());
        frame[PORT..PORT + 2].copy_from_slice(&((1024 + number % PORTS) as u16).to_be_bytes());
        socket
            .send(&frame)
            .with_context(|| format!("send packet {}", number + 1))?;
    }
    Ok(())
}

/// The number of packets counted so far, which the sender waits for.
#[derive(Default)]
struct Flow {
    counted: Mutex<u64>,
    changed: Condvar,
}

impl Flow {
    fn set(&self, counted: u64) {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = counted;
        self.changed.notify_all();
    }

    fn release_on_drop(&self) -> impl Drop {
        struct Release<'a>(&'a Flow);
        impl Drop for Release<'_> {
            fn drop(&mut self) {
                self.0.set(u64::MAX);
            }
        }
        Release(self)
    }

    fn wait_for(&self, counted: u64) {
        let guard = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(guard, |now| *now < counted));
    }
}
