//! Which system calls a child may make: all but those that reach the network, start processes, or reach into
//! other processes or the kernel. They fail with `EPERM`.

use libc::sock_filter;

/// Of `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_OF: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// What the C library takes for an old kernel: it then uses `clone`, whose flags can be seen.
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

#[cfg(target_arch = "x86_64")]
const NATIVE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const NATIVE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NATIVE: Option<u32> = None;

/// From here on numbers belong to another way to call the same kernel (x32).
const OTHER_ABI: u32 = 0x4000_0000;

const DENIED: &[libc::c_long] = &[
    // The network, also by the back door.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_io_uring_setup,
    // Processes: threads are all it needs.
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

/// `None` on architectures whose numbers are not written down here.
pub fn program() -> Option<Vec<sock_filter>> {
    const fn step(code: u16, k: u32) -> sock_filter {
        sock_filter { code, jt: 0, jf: 0, k }
    }
    /// Skips the step that follows unless the test holds.
    const fn unless(code: u16, k: u32) -> sock_filter {
        sock_filter { code, jt: 0, jf: 1, k }
    }
    let number = |call: libc::c_long| u32::try_from(call).ok();
    let mut program = vec![
        step(LOAD, ARCHITECTURE),
        sock_filter { code: EQUAL, jt: 1, jf: 0, k: NATIVE? },
        step(RETURN, DENY),
        step(LOAD, NUMBER),
        unless(AT_LEAST, OTHER_ABI),
        step(RETURN, DENY),
        unless(EQUAL, number(libc::SYS_clone3)?),
        step(RETURN, UNKNOWN),
    ];
    for call in DENIED {
        program.extend([unless(EQUAL, number(*call)?), step(RETURN, DENY)]);
    }
    program.extend([
        sock_filter { code: EQUAL, jt: 0, jf: 3, k: number(libc::SYS_clone)? },
        step(LOAD, FIRST_ARGUMENT),
        sock_filter { code: ANY_OF, jt: 1, jf: 0, k: libc::CLONE_THREAD as u32 },
        step(RETURN, DENY),
        step(RETURN, ALLOW),
    ]);
    Some(program)
}
