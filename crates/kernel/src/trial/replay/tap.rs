//! An interface for packets that do not fit into a run of a program. A program for packets of a
//! single buffer sees a packet of any length completely in generic mode, while `BPF_PROG_TEST_RUN`
//! provides a single page.
//!
//! The interface is a TAP in a network namespace of its own, without other interfaces. A write of a
//! frame to the TAP returns after the kernel has received the frame and called the program.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use aya_obj::generated::XDP_FLAGS_SKB_MODE;
use aya_obj::generated::bpf_attach_type::BPF_XDP;
use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::{Hook, ProgramKind};

use crate::attach::dispatcher::program::DebugInfo;
use crate::sys::map::{self, BPF_MAP_TYPE_PROG_ARRAY, MapCreate};
use crate::sys::prog::{self, ProgLoad};
use crate::sys::{asm, link};
use crate::trial::replay::control::{Control, DONE};

const DEVICE: &str = "/dev/net/tun";
const NAME: &[u8] = b"tp_replay";
const XDP_DROP: i32 = 1;
/// The longest wait for a program that the kernel may run only after the write has returned.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_micros(100);

/// The interface with its program. Both exist until this value is dropped.
#[derive(Debug)]
pub struct Tap {
    _link: OwnedFd,
    _slots: OwnedFd,
    frames: File,
    /// The namespace, which is kept as long as the interface.
    _netns: File,
}

impl Tap {
    /// Makes the interface for `probe`, a program for packets of a single buffer. Needs
    /// CAP_SYS_ADMIN for the namespace.
    pub fn open(control: BorrowedFd<'_>, probe: BorrowedFd<'_>) -> io::Result<Self> {
        let slots = map::map_create(&MapCreate {
            map_type: BPF_MAP_TYPE_PROG_ARRAY,
            ..MapCreate::array("tp_replayed", 4, 1)
        })?;
        let (instructions, functions) = build(control, slots.as_fd());
        let debug = DebugInfo::new(&functions);
        let btf = prog::btf_load(&debug.btf)?;
        let program = ProgLoad {
            btf: Some(btf.as_fd()),
            func_info: debug.records(),
            ..ProgLoad::new("tp_replay", ProgramKind::Xdp, &instructions)
        };
        let program = prog::prog_load(&program, None)?;
        map::map_update(
            slots.as_fd(),
            &0_u32.to_ne_bytes(),
            &probe.as_raw_fd().to_ne_bytes(),
        )?;
        let (netns, frames, link) = inside(program.as_fd())?;
        Ok(Self {
            _link: link,
            _slots: slots,
            frames,
            _netns: netns,
        })
    }

    /// Shows the program a packet, at the time that `control` shows. Returns false if the kernel
    /// drops the packet instead.
    pub fn send(&mut self, control: &Control, packet: &[u8]) -> io::Result<bool> {
        control.begin();
        self.frames.write_all(packet)?;
        let limit = Instant::now() + PATIENCE;
        while !control.is_done() {
            if Instant::now() >= limit {
                return Ok(false);
            }
            thread::sleep(STEP);
        }
        Ok(true)
    }
}

/// Makes a namespace and a TAP with `program` in it, on a thread that ends afterwards, so that no
/// other thread gets into the namespace.
fn inside(program: BorrowedFd<'_>) -> io::Result<(File, File, OwnedFd)> {
    let make = || {
        // SAFETY: the call changes only the namespace of this thread, which shares nothing with the
        // other threads that depends on it.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let netns = File::open("/proc/thread-self/ns/net")?;
        let frames = File::options().read(true).write(true).open(DEVICE)?;
        let mut request = request();
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        ask(frames.as_fd(), libc::TUNSETIFF, &mut request)?;
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        ask(socket.as_fd(), libc::SIOCSIFFLAGS, &mut request)?;
        ask(socket.as_fd(), libc::SIOCGIFINDEX, &mut request)?;
        // SAFETY: the kernel has filled in the index.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        let link = link::link_create(program, index as u32, BPF_XDP, XDP_FLAGS_SKB_MODE)?;
        Ok((netns, frames, link))
    };
    thread::scope(|scope| {
        let inside = thread::Builder::new()
            .name("replay-tap".to_owned())
            .spawn_scoped(scope, make)?;
        inside
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns a request about the TAP.
fn request() -> libc::ifreq {
    // SAFETY: a structure of integers and pointers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(NAME) {
        *to = from.cast_signed() as libc::c_char;
    }
    request
}

fn ask(file: BorrowedFd<'_>, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the requests take such a structure, which lives through the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), what, std::ptr::from_mut(request)) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the instructions of the interface's program, and the places at which its two functions
/// begin. The program calls the probe, notes the call, and drops the packet, for any verdict of the
/// probe.
fn build(control: BorrowedFd<'_>, slots: BorrowedFd<'_>) -> (Vec<bpf_insn>, Vec<usize>) {
    let mut program = vec![asm::call_subprogram(0)];
    program.extend(asm::load_map_value(1, control, 0));
    program.extend([
        asm::mov_imm(2, 1),
        asm::store_u32(1, DONE as i16, 2),
        asm::mov_imm(0, XDP_DROP),
        asm::exit(),
    ]);
    let start = program.len();
    program[0] = asm::call_subprogram(start as i32 - 1);
    program.extend(asm::load_map(2, slots));
    program.extend([
        asm::mov_imm(3, 0),
        asm::call_helper(asm::HELPER_TAIL_CALL),
        asm::mov_imm(0, Hook::Xdp.pass()),
        asm::exit(),
    ]);
    (program, vec![0, start])
}
