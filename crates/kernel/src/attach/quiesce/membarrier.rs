//! `membarrier(MEMBARRIER_CMD_GLOBAL)`, which is `synchronize_rcu` and takes milliseconds. Programs
//! run inside RCU read sections.
//!
//! With a single CPU online the call returns at once: the caller runs on that CPU, so no softirq
//! runs there. With preemptible softirqs, a softirq may still be running on the CPU.
//! `MEMBARRIER_CMD_GLOBAL_EXPEDITED` waits for no softirq at all.

use std::io;

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

use crate::attach::quiesce::sweep::softirqs_are_preemptible;
use crate::sys::cpus::online_cpus;

/// Fails if the kernel does not have `MEMBARRIER_CMD_GLOBAL`.
pub fn prepare() -> io::Result<()> {
    if membarrier_query().contains_command(MembarrierCommand::Global) {
        return Ok(());
    }
    // If the kernel refuses every call, the query also lists no command. The error of the call
    // itself gives the reason.
    match membarrier(MembarrierCommand::Global) {
        Err(Errno::INVAL) => Err(io::Error::other(
            "the kernel has no MEMBARRIER_CMD_GLOBAL (nohz_full)",
        )),
        result => Ok(result?),
    }
}

/// Waits for a grace period. Fails on a single CPU with preemptible softirqs.
pub fn wait() -> io::Result<()> {
    if online_cpus()?.len() < 2 && softirqs_are_preemptible() {
        return Err(io::Error::other(
            "on a single CPU it does not wait for preemptible softirqs (PREEMPT_RT)",
        ));
    }
    Ok(membarrier(MembarrierCommand::Global)?)
}
