//! `membarrier(MEMBARRIER_CMD_GLOBAL)`, which is `synchronize_rcu` and takes milliseconds. Programs run inside RCU read
//! sections.
//!
//! With a single CPU online the call returns at once: the caller runs on that CPU, so no softirq does. Where softirqs
//! are preemptible, one may be under way all the same. `MEMBARRIER_CMD_GLOBAL_EXPEDITED` waits for no softirq at all.

use std::io;

use crate::attach::quiesce::sweep::softirqs_are_preemptible;
use crate::sys::cpus::online_cpus;

const MEMBARRIER_CMD_QUERY: libc::c_int = 0;
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

/// Fails if the kernel does not have `MEMBARRIER_CMD_GLOBAL`.
pub fn prepare() -> io::Result<()> {
    let commands = membarrier(MEMBARRIER_CMD_QUERY)?;
    if commands & MEMBARRIER_CMD_GLOBAL == 0 {
        return Err(io::Error::other("the kernel has no MEMBARRIER_CMD_GLOBAL (nohz_full)"));
    }
    Ok(())
}

/// Waits for a grace period. Fails on a single CPU with preemptible softirqs.
pub fn wait() -> io::Result<()> {
    if online_cpus()?.len() < 2 && softirqs_are_preemptible() {
        return Err(io::Error::other(
            "on a single CPU it does not wait for preemptible softirqs (PREEMPT_RT)",
        ));
    }
    membarrier(MEMBARRIER_CMD_GLOBAL).map(drop)
}

fn membarrier(command: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: a system call that takes three integers and no memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(libc::c_int::try_from(result).unwrap_or(0)) }
}
