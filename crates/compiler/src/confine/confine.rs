//! Child processes with untrusted input. They may only read allowed files and write to their pipes.
//! They reach neither the network nor other processes, and start no process. Their resources are
//! limited.
//!
//! All preparation happens before the fork: between fork and exec only system calls are safe. The
//! calls of rustix and seccompiler in between take no lock and no memory. Landlock's crate does not
//! promise this, so the code enters the ruleset by hand.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    Scope, path_beneath_rules,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Gid, Resource, Rlimit, Uid, geteuid, setpriority_process, setrlimit, setsid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{BpfProgram, apply_filter};

use crate::confine::filter;

/// A user id outside of all tables and allocations of users (systemd's list calls 65520 to 65533
/// unused): the user `nobody` may trace the processes of `nobody`.
pub const USER: u32 = 65533;
/// The processes and threads that this user may have in all.
const THREADS: u64 = 1024;
/// The newest Landlock ABI of the denied rights; rights unknown to this kernel are left out.
const NEWEST: ABI = ABI::V6;
/// The highest score for the case that no memory is left: the kernel ends such a process before any
/// other.
const FIRST_TO_GO: &[u8] = b"1000";
/// A child has a lower priority than other processes.
const NICE: i32 = 5;

/// The rights of a child process: files, memory, CPU time, open files.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Files, and directories with everything below them.
    pub read: Vec<PathBuf>,
    /// Files and directories that the child may run as well as read.
    pub run: Vec<PathBuf>,
    /// The directories where the dynamic loader looks first.
    pub libraries: OsString,
    /// Bytes of address space.
    pub memory: u64,
    /// Bytes of memory for the child's writes.
    pub data: u64,
    pub cpu_time: Duration,
    pub open_files: u64,
}

/// A means of confinement that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    Landlock,
    Filter,
    User,
}

impl Lack {
    /// Returns the name of what is missing, and how to provide it.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Landlock => {
                "the kernel offers no Landlock, which keeps it from reading this host's files (use Linux 5.13 or later \
                 with `landlock` in /sys/kernel/security/lsm, and allow the system calls landlock_create_ruleset, \
                 landlock_add_rule and landlock_restrict_self)"
            }
            Self::Filter => "no filter of system calls is known for this architecture",
            Self::User => {
                "the daemon is root and may not run it as another user (give the daemon CAP_SETUID and CAP_SETGID)"
            }
        }
    }
}

/// The means by which a child is confined; none by default. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub struct Confinement(Arc<Means>);

#[derive(Debug, Default)]
struct Means {
    files: Option<OwnedFd>,
    /// Filters of system calls; none on architectures that seccompiler does not know.
    calls: Vec<BpfProgram>,
    /// The user whose rights the child has; `None` for the daemon's user.
    user: Option<u32>,
    limits: Vec<(Resource, Rlimit)>,
    libraries: OsString,
    /// The files that the child inherits.
    inherited: Arc<[OwnedFd]>,
    lacking: Vec<Lack>,
}

impl Confinement {
    /// Uses all means that this kernel has.
    pub fn new(allowed: &Allowed, inherited: Arc<[OwnedFd]>) -> Self {
        let files = files(allowed).unwrap_or_else(|error| {
            tracing::warn!(%error, "the compiler runs without Landlock rules");
            None
        });
        let calls = filter::programs().unwrap_or_else(|error| {
            tracing::warn!(%error, "the compiler runs without a filter of system calls");
            Vec::new()
        });
        let is_root = geteuid().is_root();
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let user = is_root && capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
        let lacks = [
            (files.is_none(), Lack::Landlock),
            (calls.is_empty(), Lack::Filter),
            (is_root && !user, Lack::User),
        ];
        let lacking = lacks
            .into_iter()
            .filter_map(|(lacks, what)| lacks.then_some(what))
            .collect();
        let limits = limits(allowed, user);
        let libraries = allowed.libraries.clone();
        let user = user.then_some(USER);
        Self(Arc::new(Means {
            files,
            calls,
            user,
            limits,
            libraries,
            inherited,
            lacking,
        }))
    }

    /// Uses limits only, because every child can live with them.
    pub fn limits_only(allowed: &Allowed, inherited: Arc<[OwnedFd]>) -> Self {
        let limits = limits(allowed, false);
        let lacking = vec![Lack::Landlock, Lack::Filter, Lack::User];
        Self(Arc::new(Means {
            limits,
            inherited,
            lacking,
            ..Means::default()
        }))
    }

    /// Returns the means that are missing.
    pub fn lacking(&self) -> &[Lack] {
        &self.0.lacking
    }

    /// Tells whether the child can read and reach only the permitted files.
    pub fn is_tight(&self) -> bool {
        self.0.files.is_some() && self.0.lacking.is_empty()
    }

    /// Confines the child that `command` starts.
    pub fn apply(&self, command: &mut Command) {
        self.apply_with(command, Arc::default());
    }

    /// Does the same as [`Self::apply`] for a child that inherits further files.
    pub fn apply_with(&self, command: &mut Command, more: Arc<[OwnedFd]>) {
        if !self.0.libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", &self.0.libraries);
        }
        let means = Arc::clone(&self.0);
        // SAFETY: `enter` makes system calls only; it takes no lock and no memory.
        unsafe { command.pre_exec(move || means.enter(&more)) };
    }
}

impl Means {
    /// Confines the calling process: the child, before it becomes another program.
    fn enter(&self, more: &[OwnedFd]) -> io::Result<()> {
        // The file is opened before the limit of open files applies: the child still has the
        // daemon's files.
        let mark = rustix::fs::open(
            c"/proc/self/oom_score_adj",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::io::write(mark, FIRST_TO_GO)?;
        // Ctrl-C in the daemon's terminal must not reach the child, and the kernel shares out
        // processors by sessions.
        setsid()?;
        // If the daemon itself has a lower priority, the child gets the daemon's priority.
        let _ = setpriority_process(None, NICE);
        for (resource, limit) in &self.limits {
            setrlimit(*resource, *limit)?;
        }
        // Descriptors that the daemon has inherited may lack the flag. Kernels before 5.11 refuse
        // the call; they have no Landlock. SAFETY: the call takes three numbers and closes nothing
        // before exec.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        for file in self.inherited.iter().chain(more) {
            fcntl_setfd(file, FdFlags::empty())?;
        }
        self.drop_rights()?;
        if let Some(files) = &self.files {
            // SAFETY: a descriptor that is open, and no flags.
            if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, files.as_raw_fd(), 0) } < 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        // This is the error of the system call, made without an allocation.
        self.calls
            .iter()
            .try_for_each(|calls| apply_filter(calls).map_err(|_| io::Error::last_os_error()))
    }

    /// Gives up the daemon's user and all capabilities of the calling process for good.
    fn drop_rights(&self) -> io::Result<()> {
        if let Some(number) = self.user {
            let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
            // Groups are set first, because `user` may not change them.
            set_thread_groups(&[])?;
            set_thread_res_gid(group, group, group)?;
            set_thread_res_uid(user, user, user)?;
        }
        set_no_new_privs(true)?;
        // Together with the previous call, this prevents an exec from restoring dropped rights,
        // even for root.
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            },
        )?;
        Ok(())
    }
}

/// Returns a Landlock ruleset; `None` if the kernel has no Landlock.
fn files(allowed: &Allowed) -> Result<Option<OwnedFd>, landlock::RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        // Paths that do not exist are left out.
        .add_rules(path_beneath_rules(&allowed.read, read))?
        .add_rules(path_beneath_rules(&allowed.run, read | AccessFs::Execute))?;
    Ok(ruleset.into())
}

fn limits(allowed: &Allowed, other_user: bool) -> Vec<(Resource, Rlimit)> {
    let seconds = allowed.cpu_time.as_secs().max(1);
    let limit = |resource, most| {
        (
            resource,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )
    };
    let mut limits = vec![
        limit(Resource::As, allowed.memory),
        limit(Resource::Data, allowed.data),
        limit(Resource::Cpu, seconds),
        limit(Resource::Nofile, allowed.open_files),
        limit(Resource::Fsize, 0),
        limit(Resource::Core, 0),
        limit(Resource::Memlock, 0),
    ];
    if other_user {
        limits.push(limit(Resource::Nproc, THREADS));
    }
    limits
}
