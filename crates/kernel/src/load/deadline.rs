//! A time limit for the verifier. The kernel's verifier stops when a signal is pending for its
//! thread (Linux 5.0), so a timer of the kernel sends a signal to the thread.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The interval between repeated signals, because a signal shortly before the call of the verifier
/// is lost.
const AGAIN: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

thread_local! {
    /// The end of this thread's limit.
    static END: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A limit for the programs that this thread loads. Once the time is over, every load fails with
/// `EAGAIN`. The limit ends when this value is dropped.
#[derive(Debug)]
pub struct Deadline {
    timer: libc::timer_t,
    /// A marker that keeps this value on its thread: the timer sends its signals to the thread that
    /// made it.
    not_send: PhantomData<*const ()>,
}

impl Deadline {
    /// Starts a limit of `after` for this thread.
    pub fn start(after: Duration) -> io::Result<Self> {
        let signal = handled_signal()?;
        // SAFETY: a structure of integers and pointers, for which zero is a value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer = std::ptr::null_mut();
        // SAFETY: both structures outlive the call, which writes the timer's id.
        check(unsafe {
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
        })?;
        let deadline = Self {
            timer,
            not_send: PhantomData,
        };
        let after = after.max(Duration::from_nanos(1));
        let first = libc::timespec {
            tv_sec: libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: after.subsec_nanos().into(),
        };
        let times = libc::itimerspec {
            it_interval: AGAIN,
            it_value: first,
        };
        // SAFETY: the timer exists until `deadline` is dropped, and `times` outlives the call.
        check(unsafe { libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()) })?;
        END.set(Instant::now().checked_add(after));
        Ok(deadline)
    }

    /// Starts the limit of another thread, for which this thread loads, on this thread.
    pub fn until(end: Instant) -> io::Result<Self> {
        Self::start(end.saturating_duration_since(Instant::now()))
    }

    /// Returns the end of this thread's limit; `None` without a limit.
    pub fn of_this_thread() -> Option<Instant> {
        END.get()
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        END.set(None);
        // SAFETY: the timer was made by `start` and is deleted once. Its signal has a handler for
        // good.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Returns the number of the timer's signal. Its handler does nothing, because the arrival of the
/// signal interrupts the call.
fn handled_signal() -> io::Result<i32> {
    static SIGNAL: OnceLock<Result<i32, i32>> = OnceLock::new();
    extern "C" fn ignore(_: i32) {}
    let set = || {
        let signal = libc::SIGRTMIN() + 3;
        // SAFETY: a structure for which zero is a value: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = ignore as extern "C" fn(i32) as usize;
        // SAFETY: the handler does nothing, so it may run at any point; no other code uses this
        // signal.
        check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })
            .map(|()| signal)
            .map_err(|error| error.raw_os_error().unwrap_or_default())
    };
    SIGNAL
        .get_or_init(set)
        .map_err(io::Error::from_raw_os_error)
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
pub mod testing {
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// Returns the processor time that `work` takes on this thread: on a busy machine it is less
    /// than the elapsed time, and it is never more.
    pub fn processor_time(work: impl FnOnce()) -> Duration {
        let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let begun = now();
        work();
        now() - begun
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::hook::ProgramKind;

    use super::testing::processor_time;
    use super::*;
    use crate::sys::asm::{add_imm32, exit, jump, jump_gt32, mov_imm};
    use crate::sys::prog::{ProgLoad, prog_load};

    #[test]
    fn the_verifier_is_stopped_and_the_next_load_is_not() {
        // The verifier follows each round of the loop.
        let slow = [
            mov_imm(0, 0),
            add_imm32(0, 1),
            jump_gt32(0, 250_000, 1),
            jump(-3),
            mov_imm(0, 2),
            exit(),
        ];
        let slow = ProgLoad::new("slow", ProgramKind::Xdp, &slow);
        let whole = processor_time(|| drop(prog_load(&slow, None).unwrap()));
        for limit in [Duration::ZERO, whole / 10] {
            let deadline = Deadline::start(limit).unwrap();
            let error = prog_load(&slow, None).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EAGAIN), "{error}");
            // A load that begins after the limit is stopped as well.
            prog_load(&slow, None).unwrap_err();
            drop(deadline);
        }
        prog_load(&slow, None).unwrap();
        let _deadline = Deadline::start(Duration::from_secs(3600)).unwrap();
        prog_load(&slow, None).unwrap();
    }
}
