//! A placebo: a process that has nothing to do with packets and burns as much processor time as the
//! daemon does.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use twinprobe_tests::netns::pin_to_cpu;

use super::wall::{now, sleep_until};
use crate::frame::site::LOADED;

/// The process. It ends on drop.
#[derive(Debug)]
pub struct Placebo {
    child: Child,
}

impl Placebo {
    /// Starts a process that burns this much at each multiple of `every`, off the CPU that sends
    /// and receives.
    pub fn start(every: Duration, burn: Duration) -> Result<Self> {
        let order = format!("{}/{}", every.as_nanos(), burn.as_nanos());
        let child = Command::new(std::env::current_exe()?)
            .args(["--burn", &order])
            .stdout(Stdio::null())
            .spawn()
            .context("start the placebo")?;
        Ok(Self { child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the call has no pointers. The child is not reaped before the drop, so no other
        // process can have its id.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }
}

impl Drop for Placebo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Burns processor time until the process is killed. `order` is `EVERY/BURN`, both in nanoseconds.
pub fn burn(order: &str) -> Result<()> {
    let (every, burn) = order.split_once('/').context("EVERY/BURN")?;
    let (every, burn) = (every.parse::<u64>()?, Duration::from_nanos(burn.parse()?));
    pin_to_cpu(LOADED + 1)?;
    loop {
        sleep_until((now() + 1).next_multiple_of(every));
        let started = Instant::now();
        while started.elapsed() < burn {
            std::hint::spin_loop();
        }
    }
}
