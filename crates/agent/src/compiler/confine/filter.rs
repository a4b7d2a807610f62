//! The system calls that a child may make: all but those that reach the network, start processes, or reach
//! into other processes or the kernel. A denied call fails with `EPERM`.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// No architecture has a system call with this number or a higher one. The x32 ABI has higher numbers: with a
/// list of denied calls alone, each higher number would be another way to make a denied call.
const END: libc::c_long = 512;

const DENIED: &[libc::c_long] = &[
    // The network; io_uring can open sockets as well.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_io_uring_setup,
    // Other processes: the child needs threads only.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    // The rest of the kernel.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_memfd_create,
];

/// The filters, to be entered in this order; none on architectures that seccompiler does not know.
pub fn programs() -> Result<Vec<BpfProgram>, BackendError> {
    let Ok(architecture) = std::env::consts::ARCH.try_into() else { return Ok(Vec::new()) };
    let compile = |rules: BTreeMap<_, _>, matching, other| {
        SeccompFilter::new(rules, other, matching, architecture)?.try_into()
    };
    let errno = |code: i32| SeccompAction::Errno(code as u32);
    let thread = libc::CLONE_THREAD as u64;
    let starts_thread =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), thread)?;
    let mut allowed: BTreeMap<_, _> =
        (0..END).filter(|call| !DENIED.contains(call)).map(|call| (call, Vec::new())).collect();
    allowed.insert(libc::SYS_clone, vec![SeccompRule::new(vec![starts_thread])?]);
    // ENOSYS makes the C library use `clone` as on an old kernel; the filter can see the flags of `clone`.
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok(vec![
        compile(allowed, SeccompAction::Allow, errno(libc::EPERM))?,
        compile(unknown, errno(libc::ENOSYS), SeccompAction::Allow)?,
    ])
}
