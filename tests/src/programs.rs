//! Programs that another process loaded: found by their pins, run on a frame without an interface.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use aya_obj::generated::bpf_cmd;

/// A program in the kernel.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// The result of many runs of a program.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// The processor time of all runs.
    pub time: Duration,
    /// The return value of the last run.
    pub verdict: i32,
}

/// The kernel's count of a program's runs, for the time in which `BPF_ENABLE_STATS` is on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    pub runs: u64,
    pub nanoseconds: u64,
}

impl Counted {
    /// Returns the nanoseconds per run since an earlier count; 0 if there was none.
    pub fn per_run_since(&self, earlier: Self) -> f64 {
        let runs = self.runs - earlier.runs;
        if runs == 0 {
            0.0
        } else {
            (self.nanoseconds - earlier.nanoseconds) as f64 / runs as f64
        }
    }
}

impl Program {
    /// Opens the program that is attached by the link pinned at `pin`.
    pub fn behind_link(pin: &Path) -> Result<Self> {
        #[repr(C)]
        #[derive(Default)]
        struct LinkInfo {
            kind: u32,
            id: u32,
            prog_id: u32,
        }
        #[repr(C)]
        struct Attr {
            bpf_fd: u32,
            info_len: u32,
            info: u64,
        }
        let link = pinned(pin)?;
        let mut info = LinkInfo::default();
        let mut attr = Attr {
            bpf_fd: link.as_raw_fd() as u32,
            info_len: size_of::<LinkInfo>() as u32,
            info: (&raw mut info) as u64,
        };
        bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr).context("ask for the link's program")?;
        Self::from_id(info.prog_id)
    }

    /// Opens the program in `slot` of the prog-array pinned at `pin`.
    pub fn in_slot(pin: &Path, slot: u32) -> Result<Self> {
        #[repr(C)]
        struct Attr {
            map_fd: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let array = pinned(pin)?;
        let mut id = 0_u32;
        let mut attr = Attr {
            map_fd: array.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const slot) as u64,
            value: (&raw mut id) as u64,
            flags: 0,
        };
        bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attr)
            .with_context(|| format!("look up slot {slot}"))?;
        Self::from_id(id)
    }

    /// Opens a program by its id.
    pub fn from_id(id: u32) -> Result<Self> {
        let fd = opened(bpf_cmd::BPF_PROG_GET_FD_BY_ID, id)
            .with_context(|| format!("open program {id}"))?;
        Ok(Self(fd))
    }

    /// Returns the kernel's count of the runs of the program for packets.
    pub fn counted(&self) -> Result<Counted> {
        Ok(Counted {
            runs: self.line("run_cnt")?,
            nanoseconds: self.line("run_time_ns")?,
        })
    }

    pub fn id(&self) -> Result<u64> {
        self.line("prog_id")
    }

    /// Returns the number that the kernel shows of the program under a name.
    fn line(&self, name: &str) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.with_context(|| format!("no {name} of a program"))?
            .trim()
            .parse()
            .context("not a number")
    }

    /// Runs the program `repeat` times on `frame` (`BPF_PROG_TEST_RUN`).
    ///
    /// The time is the calling thread's processor time, because the kernel's own figure has only
    /// whole nanoseconds per run.
    pub fn run(&self, frame: &[u8], repeat: u32) -> Result<Runs> {
        #[repr(C)]
        #[derive(Default)]
        struct Attr {
            prog_fd: u32,
            retval: u32,
            data_size_in: u32,
            data_size_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
        }
        let mut attr = Attr {
            prog_fd: self.0.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat,
            ..Attr::default()
        };
        let started = thread_time()?;
        bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr).context("run a program")?;
        Ok(Runs {
            time: thread_time()? - started,
            verdict: attr.retval as i32,
        })
    }
}

pub(crate) fn pinned(pin: &Path) -> Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        pathname: u64,
        bpf_fd: u32,
        file_flags: u32,
    }
    let path = CString::new(pin.as_os_str().as_bytes())?;
    let mut attr = Attr {
        pathname: path.as_ptr() as u64,
        bpf_fd: 0,
        file_flags: 0,
    };
    let fd = bpf(bpf_cmd::BPF_OBJ_GET, &mut attr)
        .with_context(|| format!("open the pin {}", pin.display()))?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a program or map by its id.
pub(crate) fn opened(cmd: bpf_cmd, id: u32) -> io::Result<OwnedFd> {
    // The fields are `id`, `next_id` and `open_flags`.
    let fd = bpf(cmd, &mut [id, 0, 0])?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn thread_time() -> io::Result<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live structure that the call fills.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec as u32,
    ))
}

pub(crate) fn bpf<T>(cmd: bpf_cmd, attr: &mut T) -> io::Result<i32> {
    // SAFETY: a live, fully initialised structure of the length that is passed; what its pointers
    // point to outlives the call, as the callers hold it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            cmd as libc::c_long,
            &raw mut *attr,
            size_of::<T>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}
