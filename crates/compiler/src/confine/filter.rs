//! The system calls that a child may make: only those that a compiler needs. Others fail with
//! `EPERM`, or with `ENOSYS` if they are so new that C libraries have a fallback.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// Calls that are allowed with any arguments. Landlock checks paths.
const ALLOWED: &[libc::c_long] = &[
    // Calls for files, and for the pipes that the compiler gets.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_ppoll,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    // Calls for threads, signal handlers and the end of the child. `execve` starts the child's
    // program; Landlock allows one program.
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_restart_syscall,
    // Calls for facts about the process, for the time, and for random numbers.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    // The older forms of some of these calls.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getpgrp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getrlimit,
];

/// The calls from this number on came with Linux 5.1 and later: C libraries do without them if the
/// kernel does not know them. `clone3` is among them; a filter can't see its flags.
const NEW: libc::c_long = 424;
/// No architecture has a call of this number or a higher one, except the x32 ABI, which is never
/// allowed.
const END: libc::c_long = 512;

/// The filters, to be entered in this order; none on architectures that seccompiler does not know.
pub fn programs() -> Result<Vec<BpfProgram>, BackendError> {
    let Ok(architecture) = std::env::consts::ARCH.try_into() else {
        return Ok(Vec::new());
    };
    let compile = |rules: BTreeMap<_, _>, matching, other| {
        SeccompFilter::new(rules, other, matching, architecture)?.try_into()
    };
    let errno = |code: i32| SeccompAction::Errno(code as u32);
    let argument = |index, operation, value: u64| -> Result<Vec<SeccompRule>, BackendError> {
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operation, value)?;
        Ok(vec![SeccompRule::new(vec![condition])?])
    };
    let thread = libc::CLONE_THREAD as u64;
    let mut allowed: BTreeMap<_, _> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // Threads, no processes.
    allowed.insert(
        libc::SYS_clone,
        argument(0, SeccompCmpOp::MaskedEq(thread), thread)?,
    );
    // The child may change only its own limits, and can't raise them.
    allowed.insert(libc::SYS_prlimit64, argument(0, SeccompCmpOp::Eq, 0)?);
    allowed.insert(
        libc::SYS_prctl,
        argument(0, SeccompCmpOp::Eq, libc::PR_SET_NAME as u64)?,
    );
    // The first filter answers these calls. The second filter, which lets them pass, prevents any
    // further filter.
    let unknown: BTreeMap<_, _> = (NEW..END)
        .filter(|call| !ALLOWED.contains(call))
        .map(|call| (call, Vec::new()))
        .collect();
    allowed.extend(unknown.clone());
    Ok(vec![
        compile(unknown, errno(libc::ENOSYS), SeccompAction::Allow)?,
        compile(allowed, SeccompAction::Allow, errno(libc::EPERM))?,
    ])
}
