//! A task that keeps a processor busy, so that nothing else runs on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::netns::pin_to_cpu;

/// A SCHED_FIFO task that keeps a CPU busy until its drop, or for at most the given time.
pub struct Hog {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    /// Starts the task on a CPU and waits until it runs.
    ///
    /// Fails if this process may not have real-time tasks.
    pub fn start(cpu: usize, longest: Duration) -> Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let (sender, begun) = std::sync::mpsc::channel();
        let thread = thread::spawn({
            let end = Arc::clone(&end);
            move || {
                let started = pin_to_cpu(cpu)
                    .context("move to a CPU")
                    .and_then(|()| real_time());
                let runs = started.is_ok();
                let _ = sender.send(started);
                let deadline = Instant::now() + longest;
                while runs && !end.load(Ordering::Relaxed) && Instant::now() < deadline {}
            }
        });
        begun.recv()??;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn real_time() -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 50 };
    // SAFETY: `parameters` lives through the call; pid 0 is this thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    ensure!(
        result == 0,
        "sched_setscheduler: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}
