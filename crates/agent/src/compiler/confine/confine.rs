//! Confinement of child processes that read input of somebody else: a child reads only the files that it may,
//! writes only the pipes that it is given, reaches no network, starts no process, and has limits.
//!
//! Each means is used if the kernel has it. All preparation is done beforehand: between fork and exec only
//! system calls are safe. The calls of rustix and seccompiler that are used there take no lock and no memory;
//! landlock does not promise it, so that its ruleset is entered by hand.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope,
    path_beneath_rules,
};
use rustix::process::{Gid, Resource, Rlimit, Uid, geteuid, setrlimit};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use seccompiler::{BpfProgram, apply_filter};

use crate::compiler::confine::filter;

/// `nobody`, by its number: there need be no entry in a table of users.
const NOBODY: u32 = 65534;
/// The newest Landlock ABI whose rights are denied; rights that this kernel does not know are left out.
const NEWEST: ABI = ABI::V6;

/// The rights of a child process: files, memory, CPU time, open files.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Files, and directories with all below them.
    pub read: Vec<PathBuf>,
    /// Files and directories that the child may run as well as read.
    pub run: Vec<PathBuf>,
    /// Bytes of address space.
    pub memory: u64,
    pub cpu_time: Duration,
    pub open_files: u64,
}

/// The user that the child runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The user `nobody`, who owns nothing, if this process is root: only root can give its rights up.
    Nobody,
    /// The user of this process.
    Same,
}

/// The means that keep a child to its rights; none by default. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Confinement(Arc<Means>);

#[derive(Debug, Default)]
struct Means {
    files: Option<OwnedFd>,
    /// Filters of system calls; none on architectures that seccompiler does not know.
    calls: Vec<BpfProgram>,
    user: Option<u32>,
    limits: Vec<(Resource, Rlimit)>,
}

impl Confinement {
    /// Uses all means that this kernel has.
    pub fn new(allowed: &Allowed, user: User) -> Self {
        let files = files(allowed).unwrap_or_else(|error| {
            tracing::warn!(%error, "the compiler runs without Landlock rules");
            None
        });
        let calls = filter::programs().unwrap_or_else(|error| {
            tracing::warn!(%error, "the compiler runs without a filter of system calls");
            Vec::new()
        });
        let user = (geteuid().is_root() && user == User::Nobody).then_some(NOBODY);
        Self(Arc::new(Means { files, calls, user, limits: limits(allowed) }))
    }

    /// Uses limits only, which every child can live with.
    pub fn limits_only(allowed: &Allowed) -> Self {
        Self(Arc::new(Means { limits: limits(allowed), ..Means::default() }))
    }

    /// Tells whether the kernel keeps the child to its files and system calls.
    pub fn is_tight(&self) -> bool {
        self.0.files.is_some() && !self.0.calls.is_empty()
    }

    /// Confines the child that `command` starts.
    pub fn apply(&self, command: &mut Command) {
        let means = Arc::clone(&self.0);
        // SAFETY: `enter` makes system calls only; it takes no lock and no memory.
        unsafe { command.pre_exec(move || means.enter()) };
    }
}

impl Means {
    /// Confines the calling process: the child, before it becomes another program.
    fn enter(&self) -> io::Result<()> {
        for (resource, limit) in &self.limits {
            setrlimit(*resource, *limit)?;
        }
        if let Some(number) = self.user {
            let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
            // Groups go first: `user` may not change them.
            set_thread_groups(&[])?;
            set_thread_res_gid(group, group, group)?;
            set_thread_res_uid(user, user, user)?;
        }
        set_no_new_privs(true)?;
        if let Some(files) = &self.files {
            // SAFETY: a descriptor that is open, and no flags.
            if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, files.as_raw_fd(), 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // The error of the system call, without the memory that wrapping it would take.
        self.calls.iter().try_for_each(|calls| apply_filter(calls).map_err(|_| io::Error::last_os_error()))
    }
}

/// A Landlock ruleset; `None` if the kernel has none.
fn files(allowed: &Allowed) -> Result<Option<OwnedFd>, landlock::RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        // Paths that are not there are left out.
        .add_rules(path_beneath_rules(&allowed.read, read))?
        .add_rules(path_beneath_rules(&allowed.run, read | AccessFs::Execute))?;
    Ok(ruleset.into())
}

fn limits(allowed: &Allowed) -> Vec<(Resource, Rlimit)> {
    let seconds = allowed.cpu_time.as_secs().max(1);
    let limit = |resource, most| (resource, Rlimit { current: Some(most), maximum: Some(most) });
    vec![
        limit(Resource::As, allowed.memory),
        limit(Resource::Cpu, seconds),
        limit(Resource::Nofile, allowed.open_files),
        limit(Resource::Fsize, 0),
        limit(Resource::Core, 0),
        limit(Resource::Memlock, 0),
    ]
}
