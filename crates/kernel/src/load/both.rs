//! Work for both twins at the same time. The kernel verifies programs of several threads side by
//! side, and their maps are made in the same way.

use std::panic::resume_unwind;
use std::thread;

use rustix::thread::{gettid, sched_getcpu};

use crate::load::deadline::Deadline;
use crate::sys::cpus;

/// Does the work for each twin. The work for the second twin runs on a thread with the same time
/// limit as this thread. If both fail, the error is that of the first twin.
pub fn both<T: Send, E: Send>(work: impl Fn(usize) -> Result<T, E> + Sync) -> Result<[T; 2], E> {
    let (work, limit, taken) = (&work, Deadline::of_this_thread(), sched_getcpu());
    thread::scope(|scope| {
        let beside = move || {
            // The scheduler starts a thread on the CPU of its maker, and moves the thread only
            // after milliseconds.
            cpus::keep_off(gettid(), taken);
            // Without a limit of its own, the thread does no work, because the work could last
            // forever.
            let _limit = limit.map(Deadline::until).transpose().ok()?;
            Some(work(1))
        };
        let second = thread::Builder::new()
            .name("second-twin".into())
            .spawn_scoped(scope, beside);
        let first = work(0)?;
        let second = second
            .ok()
            .and_then(|second| second.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // If the host has no thread or no timer left, the twins are loaded one after the other.
        Ok([first, second.unwrap_or_else(|| work(1))?])
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use twinprobe_ebpf_common::hook::ProgramKind;

    use super::*;
    use crate::load::deadline::testing::processor_time;
    use crate::sys::asm::{add_imm32, exit, jump, jump_gt32, mov_imm};
    use crate::sys::prog::{ProgLoad, prog_load};

    #[test]
    fn twins_are_made_at_the_same_time() {
        // Each thread waits for the other.
        let barrier = Barrier::new(2);
        let made = both(|twin| {
            barrier.wait();
            Ok::<_, ()>(10 + twin)
        });
        assert_eq!(made, Ok([10, 11]));
    }

    #[test]
    fn the_first_twin_s_error_is_told() {
        assert_eq!(both(Err::<(), _>), Err(0));
        assert_eq!(
            both(|twin| if twin == 0 { Ok(()) } else { Err("no room") }),
            Err("no room")
        );
    }

    #[test]
    fn the_limit_of_a_load_is_that_of_both_twins() {
        // The verifier follows each round of the loop.
        let slow = [
            mov_imm(0, 0),
            add_imm32(0, 1),
            jump_gt32(0, 250_000, 1),
            jump(-3),
            mov_imm(0, 2),
            exit(),
        ];
        let load = |_| prog_load(&ProgLoad::new("slow", ProgramKind::Xdp, &slow), None);
        let whole = processor_time(|| drop(load(0).unwrap()));
        let only_second = |twin| {
            if twin == 0 {
                Ok(None)
            } else {
                load(twin).map(Some)
            }
        };
        let deadline = Deadline::start(whole / 10).unwrap();
        let error = both(only_second).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN), "{error}");
        drop(deadline);
        both(only_second).unwrap();
        let _deadline = Deadline::start(Duration::from_secs(3600)).unwrap();
        both(only_second).unwrap();
    }
}
