//! The CPUs of the machine, and work on a given CPU.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::OnceLock;

use rustix::process::{Pid, getpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sys::call::KernelError;

/// Returns the CPUs that are online, which can change at any time.
pub fn online_cpus() -> io::Result<Vec<usize>> {
    /// The open file of online CPUs. It stays open because each grace period reads it.
    static FILE: OnceLock<File> = OnceLock::new();
    let path = Path::new("/sys/devices/system/cpu/online");
    let file = match FILE.get() {
        Some(file) => file,
        None => {
            let file = File::open(path)?;
            FILE.get_or_init(|| file)
        }
    };
    // The kernel writes the list anew for each reading from the beginning, and at most a page.
    let mut page = [0; 4096];
    let length = file.read_at(&mut page, 0)?;
    cpu_list(path, &String::from_utf8_lossy(&page[..length]))
}

/// Returns all online CPUs, and possibly others. Once all possible CPUs were online, the result is
/// the list of all possible CPUs, because reading the file again for each grace period would take a
/// large part of the grace period's time.
pub fn all_online_cpus() -> io::Result<Cow<'static, [usize]>> {
    /// All possible CPUs, once all of them were online.
    static POSSIBLE: OnceLock<Vec<usize>> = OnceLock::new();
    if let Some(possible) = POSSIBLE.get() {
        return Ok(Cow::Borrowed(possible));
    }
    let online = online_cpus()?;
    if online.len() == possible_cpus()? {
        POSSIBLE.get_or_init(|| online.clone());
    }
    Ok(Cow::Owned(online))
}

/// Returns the number of CPUs that could ever come online. An entry of a PERCPU map has a value for
/// each of them.
pub fn possible_cpus() -> io::Result<usize> {
    static POSSIBLE: OnceLock<usize> = OnceLock::new();
    if let Some(known) = POSSIBLE.get() {
        return Ok(*known);
    }
    let possible = read_cpu_list(Path::new("/sys/devices/system/cpu/possible"))?.len();
    Ok(*POSSIBLE.get_or_init(|| possible))
}

/// Does `work` on `cpu`, or nothing if the CPU is not online.
pub fn run_on(cpu: usize, work: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    if !online_cpus()?.contains(&cpu) {
        return Ok(());
    }
    std::thread::scope(|scope| {
        let there = scope.spawn(|| move_to(cpu).and_then(|()| work()));
        there
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves this thread to `cpu` permanently. The call returns on that CPU, after a context switch.
pub fn move_to(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    // The kernel refuses an empty set.
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps a thread of this process away from `cpu` until the thread's CPUs are set again. If there
/// is no other CPU, nothing changes.
pub fn keep_off(thread: Pid, cpu: usize) {
    // The CPUs of a process are those of its main thread.
    let Ok(mut set) = sched_getaffinity(Some(getpid())) else {
        return;
    };
    set.unset(cpu);
    // The kernel refuses an empty set.
    let _ = sched_setaffinity(Some(thread), &set);
}

/// Keeps this thread on the first CPU on which it may run, so that a program always counts on the
/// same CPU.
pub fn stay_on_one_cpu() -> Result<(), KernelError> {
    let stay = || {
        let may = sched_getaffinity(None)?;
        move_to(
            (0..CpuSet::MAX_CPU)
                .find(|cpu| may.is_set(*cpu))
                .unwrap_or(0),
        )
    };
    stay().map_err(|error: io::Error| KernelError::new("sched_setaffinity", "a thread", error))
}

fn read_cpu_list(path: &Path) -> io::Result<Vec<usize>> {
    cpu_list(path, &std::fs::read_to_string(path)?)
}

fn cpu_list(path: &Path, text: &str) -> io::Result<Vec<usize>> {
    parse_cpu_list(text.trim()).ok_or_else(|| {
        io::Error::other(format!("{}: not a list of CPUs: {text:?}", path.display()))
    })
}

/// Parses a list of CPUs as sysfs writes it: `0-3,8`.
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
    fn a_thread_is_kept_off_a_cpu() {
        let stay = || {
            let (here, all) = (
                rustix::thread::sched_getcpu(),
                sched_getaffinity(Some(getpid())).unwrap(),
            );
            keep_off(rustix::thread::gettid(), here);
            let now = sched_getaffinity(None).unwrap();
            assert_eq!(now.is_set(here), all.count() == 1);
            assert_eq!(
                now.count(),
                if all.count() == 1 { 1 } else { all.count() - 1 }
            );
        };
        std::thread::spawn(stay).join().unwrap();
    }

    #[test]
    fn cpu_lists_are_read_as_sysfs_writes_them() {
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpu_list(""), None);
        assert_eq!(parse_cpu_list("a-b"), None);
    }
}
