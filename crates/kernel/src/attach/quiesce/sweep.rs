//! One thread runs on every CPU in turn.
//!
//! XDP and TC programs run with softirqs disabled. A CPU that has run another thread since the flip
//! has therefore left the programs that ran before. The switch to that thread is a full memory
//! barrier on every architecture: all writes of these programs are visible, and programs that begin
//! later see the flip. The CPU that runs the thread when a caller asks needs no visit, because the
//! caller has held the same lock after the flip. The CPU on which the caller was after the flip
//! needs no visit either, if no other caller has asked. On two CPUs it is therefore enough to wake
//! the thread on the other CPU. A sweep takes tens of microseconds on an idle machine. The method
//! is not valid where softirqs are preemptible (PREEMPT_RT).

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::sched_getcpu;

use crate::sys::cpus::{all_online_cpus, move_to, online_cpus};

/// The last CPU to which a sweep has moved or tried to move.
static VISITING: AtomicUsize = AtomicUsize::new(0);

/// Checks that the method is valid. Only a sweep shows whether every CPU can be visited.
pub fn prepare() -> io::Result<()> {
    if softirqs_are_preemptible() {
        return Err(io::Error::other(
            "softirqs are preemptible here (PREEMPT_RT)",
        ));
    }
    Ok(())
}

/// Returns the CPU that a sweep is visiting, as a part of a message.
pub fn place() -> String {
    format!(" at CPU {}", VISITING.load(Ordering::Relaxed))
}

/// Waits for a grace period. `left` is a CPU that all earlier programs have left, so the sweep
/// skips it. Fails if a cpuset keeps this thread from an online CPU.
pub fn wait(left: Option<usize>) -> io::Result<()> {
    let online = all_online_cpus()?;
    let here = sched_getcpu();
    for &cpu in online
        .iter()
        .filter(|cpu| **cpu != here && Some(**cpu) != left)
    {
        VISITING.store(cpu, Ordering::Relaxed);
        if let Err(error) = visit(cpu)
            // A CPU that has just become offline runs nothing any longer.
            && online_cpus()?.contains(&cpu)
        {
            return Err(io::Error::new(
                error.kind(),
                format!("CPU {cpu} can't be visited: {error}"),
            ));
        }
    }
    Ok(())
}

fn visit(cpu: usize) -> io::Result<()> {
    move_to(cpu)?;
    // A cpuset that changes moves the threads in it.
    if sched_getcpu() == cpu {
        Ok(())
    } else {
        Err(io::Error::other("moved away at once"))
    }
}

/// Tells whether softirqs are preemptible, as the kernel's build says in `/sys/kernel/realtime` or
/// its version.
pub fn softirqs_are_preemptible() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    read("/sys/kernel/realtime").trim() == "1"
        || read("/proc/sys/kernel/version").contains("PREEMPT_RT")
}
