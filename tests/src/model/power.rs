//! Daemons that may do less, and machines that do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::netns::pin_to_cpu;

const UNIT: &str = include_str!("../../../deploy/twinprobe.service");
/// No CPU is kept longer.
const LONGEST: Duration = Duration::from_secs(2);

/// A program that gives up what the service's unit does, and becomes the daemon.
pub fn wrapper(directory: &Path) -> Result<PathBuf> {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.context("the unit has a bounding set")?.split_whitespace();
    let set: String =
        names.map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase())).collect();
    let path = directory.join("wrapper");
    let script = format!(
        "#!/bin/sh\nexec setpriv --bounding-set=-all{set} --inh-caps=-all --no-new-privs '{}' \"$@\"\n",
        crate::binary()?.display()
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A real-time task that keeps a CPU to itself, until it is dropped.
pub struct Hog {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    pub fn start(cpu: usize) -> Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let (sender, begun) = std::sync::mpsc::channel();
        let thread = thread::spawn({
            let end = Arc::clone(&end);
            move || {
                let started = pin_to_cpu(cpu).context("move to a CPU").and_then(|()| real_time());
                let runs = started.is_ok();
                let _ = sender.send(started);
                let deadline = Instant::now() + LONGEST;
                while runs && !end.load(Ordering::Relaxed) && Instant::now() < deadline {}
            }
        });
        begun.recv()??;
        Ok(Self { end, thread: Some(thread) })
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
    ensure!(result == 0, "sched_setscheduler: {}", std::io::Error::last_os_error());
    Ok(())
}
