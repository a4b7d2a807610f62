//! The grace period after a flip: wait until no CPU can still run a program of the twin that was left.
//!
//! The paper reads the idle twin straight after the swap, while other CPUs may still be inside it; updates
//! are then lost or counted in the wrong window. XDP and TC programs run with softirqs disabled, so a CPU
//! that has run another thread since the flip has left them. The sweep therefore runs one thread on every
//! CPU in turn, which takes tens of microseconds where `synchronize_rcu` takes milliseconds. It does not hold where
//! softirqs are preemptible (PREEMPT_RT); there, and where a CPU can't be visited, it is
//! `membarrier(MEMBARRIER_CMD_GLOBAL)`, which is `synchronize_rcu`.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum QuiesceMethod {
    /// The sweep where it is valid, else membarrier.
    Auto,
    Sweep,
    Membarrier,
    /// Do not wait: windows are torn. Only for the test that shows it.
    #[value(hide = true)]
    None,
}

/// Waits for grace periods on a thread of its own, since the sweep moves the thread that does it.
#[derive(Debug)]
pub struct Quiescer {
    requests: mpsc::Sender<mpsc::SyncSender<io::Result<()>>>,
    method: QuiesceMethod,
}

impl Quiescer {
    pub fn start(method: QuiesceMethod) -> io::Result<Self> {
        let method = match method {
            QuiesceMethod::Auto if softirqs_are_preemptible() => QuiesceMethod::Membarrier,
            QuiesceMethod::Auto => QuiesceMethod::Sweep,
            chosen => chosen,
        };
        let (requests, inbox) = mpsc::channel::<mpsc::SyncSender<io::Result<()>>>();
        std::thread::Builder::new().name("quiesce".into()).spawn(move || {
            while let Ok(reply) = inbox.recv() {
                // One grace period serves everybody who asked before it began.
                let waiting: Vec<_> = std::iter::once(reply).chain(inbox.try_iter()).collect();
                let result = wait(method);
                for reply in waiting {
                    let result = match &result {
                        Ok(()) => Ok(()),
                        Err(error) => Err(copy_of(error)),
                    };
                    // A caller that has gone needs no answer.
                    let _ = reply.send(result);
                }
            }
        })?;
        Ok(Self { requests, method })
    }

    pub const fn method(&self) -> QuiesceMethod {
        self.method
    }

    /// Returns once every program run that began before the call has ended, with the time that took.
    pub fn quiesce(&self) -> io::Result<Duration> {
        if self.method == QuiesceMethod::None {
            // Not even the time it takes to wake the thread, which would be a grace period for most programs.
            return Ok(Duration::ZERO);
        }
        let started = Instant::now();
        let (reply, done) = mpsc::sync_channel(1);
        let gone = || io::Error::other("the quiesce thread has ended");
        self.requests.send(reply).map_err(|_| gone())?;
        done.recv().map_err(|_| gone())??;
        Ok(started.elapsed())
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

fn softirqs_are_preemptible() -> bool {
    std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|flag| flag.trim() == "1")
}

fn wait(method: QuiesceMethod) -> io::Result<()> {
    match method {
        QuiesceMethod::None => Ok(()),
        QuiesceMethod::Membarrier => membarrier_global(),
        QuiesceMethod::Auto | QuiesceMethod::Sweep => sweep().or_else(|_| membarrier_global()),
    }
}

/// Runs this thread on every online CPU once. Fails where a cpuset keeps it from one of them.
fn sweep() -> io::Result<()> {
    for cpu in online_cpus()? {
        if let Err(error) = move_to(cpu)
            // A CPU that has just gone offline runs nothing any more.
            && online_cpus()?.contains(&cpu)
        {
            return Err(error);
        }
    }
    Ok(())
}

/// From now on this thread runs on `cpu`. Returns there, after a context switch.
fn move_to(cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid; CPU_SET ignores numbers beyond its size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is initialised and lives through the call; pid 0 is this thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Does `work` on `cpu`, or nothing if that is not online.
pub fn run_on(cpu: usize, work: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    if !online_cpus()?.contains(&cpu) {
        return Ok(());
    }
    std::thread::scope(|scope| {
        let there = scope.spawn(|| move_to(cpu).and_then(|()| work()));
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn membarrier_global() -> io::Result<()> {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: a system call that takes three integers and no memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Those that run now; which they are can change at any time.
pub fn online_cpus() -> io::Result<Vec<usize>> {
    read_cpu_list(Path::new("/sys/devices/system/cpu/online"))
}

/// Values of a PERCPU map: one for each CPU that could ever come online, not for those that are.
pub fn possible_cpus() -> io::Result<usize> {
    Ok(read_cpu_list(Path::new("/sys/devices/system/cpu/possible"))?.len())
}

fn read_cpu_list(path: &Path) -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string(path)?;
    parse_cpu_list(text.trim())
        .ok_or_else(|| io::Error::other(format!("{}: not a list of CPUs: {text:?}", path.display())))
}

/// `0-3,8` as in sysfs.
fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_sysfs_writes_them() {
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpu_list(""), None);
        assert_eq!(parse_cpu_list("a-b"), None);
    }

    #[test]
    fn every_method_ends() {
        for method in [QuiesceMethod::Auto, QuiesceMethod::Sweep, QuiesceMethod::Membarrier] {
            let quiescer = Quiescer::start(method).unwrap();
            assert_ne!(quiescer.method(), QuiesceMethod::Auto);
            quiescer.quiesce().unwrap();
        }
    }
}
