//! Child processes that are fed what somebody else wrote: they may read what they are allowed to and nothing
//! else, write nothing but the pipes they are given, reach no network, start no process, and use so much.
//!
//! Each means is used if the kernel has it. What must be worked out is worked out beforehand: between fork and
//! exec only system calls are safe.

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

use crate::compiler::confine::filter;

/// `nobody`, by its number: there need be no entry in a table of users.
const NOBODY: u32 = 65534;
/// What handles more than this kernel knows about is reduced to what it knows.
const NEWEST: ABI = ABI::V6;

/// What a child may have.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Files, and directories with all below them.
    pub read: Vec<PathBuf>,
    /// As [`Self::read`], and these may be run.
    pub run: Vec<PathBuf>,
    /// Bytes of address space.
    pub memory: u64,
    pub cpu_time: Duration,
    pub open_files: u64,
}

/// Whose rights the child has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Those of somebody who owns nothing, if this is root: only root can give its rights up.
    Nobody,
    /// Ours.
    Same,
}

/// How a child is kept to what it may have; by default not at all. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Confinement(Arc<Means>);

#[derive(Debug, Default)]
struct Means {
    files: Option<OwnedFd>,
    calls: Option<Vec<libc::sock_filter>>,
    user: Option<u32>,
    limits: Vec<(Resource, libc::rlimit)>,
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

impl Confinement {
    /// All that this kernel has.
    pub fn new(allowed: &Allowed, user: User) -> Self {
        // SAFETY: takes nothing and returns a number.
        let root = unsafe { libc::geteuid() } == 0;
        let files = files(allowed).unwrap_or_else(|error| {
            tracing::warn!(%error, "no Landlock rules");
            None
        });
        let user = (root && user == User::Nobody).then_some(NOBODY);
        Self(Arc::new(Means { files, calls: filter::program(), user, limits: limits(allowed) }))
    }

    /// Limits only, which every child can live with.
    pub fn limits_only(allowed: &Allowed) -> Self {
        Self(Arc::new(Means { files: None, calls: None, user: None, limits: limits(allowed) }))
    }

    /// Whether the child reads and reaches only what it is allowed to.
    pub fn is_tight(&self) -> bool {
        self.0.files.is_some() && self.0.calls.is_some()
    }

    /// The child that `command` starts will be confined.
    pub fn apply(&self, command: &mut Command) {
        let means = Arc::clone(&self.0);
        // SAFETY: `enter` makes system calls only; it takes no lock and no memory.
        unsafe { command.pre_exec(move || means.enter()) };
    }
}

impl Means {
    /// In the child, before it becomes another program.
    fn enter(&self) -> io::Result<()> {
        for (resource, limit) in &self.limits {
            // SAFETY: a structure that lives through the call.
            check(unsafe { libc::setrlimit(*resource, limit) })?;
        }
        if let Some(user) = self.user {
            // SAFETY: numbers, and an empty list that is not looked at. Groups go first: `user` may not
            // change them.
            check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
            // SAFETY: numbers only.
            check(unsafe { libc::setresgid(user, user, user) })?;
            // SAFETY: numbers only.
            check(unsafe { libc::setresuid(user, user, user) })?;
        }
        // SAFETY: numbers only.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        if let Some(files) = &self.files {
            // SAFETY: a descriptor that is open, and no flags.
            check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, files.as_raw_fd(), 0) } as i32)?;
        }
        if let Some(calls) = &self.calls {
            let program = libc::sock_fprog { len: calls.len() as u16, filter: calls.as_ptr().cast_mut() };
            // SAFETY: the kernel reads `len` instructions, which live through the call.
            check(unsafe {
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
            })?;
        }
        Ok(())
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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

fn limits(allowed: &Allowed) -> Vec<(Resource, libc::rlimit)> {
    let seconds = allowed.cpu_time.as_secs().max(1);
    let limit = |resource, most| (resource, libc::rlimit { rlim_cur: most, rlim_max: most });
    vec![
        limit(libc::RLIMIT_AS, allowed.memory),
        limit(libc::RLIMIT_CPU, seconds),
        limit(libc::RLIMIT_NOFILE, allowed.open_files),
        limit(libc::RLIMIT_FSIZE, 0),
        limit(libc::RLIMIT_CORE, 0),
        limit(libc::RLIMIT_MEMLOCK, 0),
    ]
}
