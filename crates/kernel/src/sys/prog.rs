//! Commands for programs and their debug information.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use aya_obj::generated::{bpf_cmd, bpf_insn, bpf_prog_info};
use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::sys::asm;
use crate::sys::call::{address, address_mut, bpf, bpf_fd, object_name};
use crate::sys::object::fill_info;

pub fn btf_load(blob: &[u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct BtfLoadAttr {
        btf: u64,
        log_buf: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        log_true_size: u32,
    }
    let mut attr = BtfLoadAttr {
        btf: address(blob),
        size: blob.len() as u32,
        ..BtfLoadAttr::default()
    };
    bpf_fd(bpf_cmd::BPF_BTF_LOAD, &mut attr)
}

/// Records of BTF debug information. Each record has `record_size` bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct InfoRecords<'a> {
    pub bytes: &'a [u8],
    pub record_size: u32,
    pub count: u32,
}

/// The arguments of `BPF_PROG_LOAD`.
#[derive(Clone, Copy, Debug)]
pub struct ProgLoad<'a> {
    pub name: &'a str,
    pub kind: ProgramKind,
    pub flags: u32,
    pub attach_type: u32,
    pub license: &'a CStr,
    pub instructions: &'a [bpf_insn],
    pub btf: Option<BorrowedFd<'a>>,
    pub func_info: InfoRecords<'a>,
    pub line_info: InfoRecords<'a>,
}

impl<'a> ProgLoad<'a> {
    /// Returns the arguments for a program that the daemon has made itself, without flags and debug
    /// information.
    pub fn new(name: &'a str, kind: ProgramKind, instructions: &'a [bpf_insn]) -> Self {
        let (license, none) = (c"GPL", InfoRecords::default());
        let attach_type = kind.expected_attach_type();
        let (flags, btf) = (0, None);
        Self {
            name,
            kind,
            flags,
            attach_type,
            license,
            instructions,
            btf,
            func_info: none,
            line_info: none,
        }
    }
}

/// A log with each step of the verifier.
pub const LOG_STEPS: u32 = 1;
/// A log of the verifier's statistics (Linux 5.2).
pub const LOG_STATISTICS: u32 = 4;

/// Loads a program by `BPF_PROG_LOAD`. With `log`, the verifier writes a log of this kind there,
/// ended by a NUL.
pub fn prog_load(program: &ProgLoad<'_>, log: Option<(u32, &mut [u8])>) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct ProgLoadAttr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf_fd: u32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        line_info_rec_size: u32,
        line_info: u64,
        line_info_cnt: u32,
        attach_btf_id: u32,
    }
    let mut attr = ProgLoadAttr {
        prog_type: program.kind.prog_type(),
        insn_cnt: program.instructions.len() as u32,
        insns: address(program.instructions),
        license: program.license.as_ptr() as u64,
        prog_flags: program.flags,
        prog_name: object_name(program.name),
        expected_attach_type: program.attach_type,
        ..ProgLoadAttr::default()
    };
    if let Some(btf) = program.btf {
        attr.prog_btf_fd = btf.as_raw_fd() as u32;
        attr.func_info_rec_size = program.func_info.record_size;
        attr.func_info = address(program.func_info.bytes);
        attr.func_info_cnt = program.func_info.count;
        attr.line_info_rec_size = program.line_info.record_size;
        attr.line_info = address(program.line_info.bytes);
        attr.line_info_cnt = program.line_info.count;
    }
    if let Some((kind, log)) = log {
        attr.log_level = kind;
        attr.log_size = log.len() as u32;
        attr.log_buf = address_mut(log);
    }
    bpf_fd(bpf_cmd::BPF_PROG_LOAD, &mut attr)
}

/// Tells whether this kernel takes extensions of programs (`BPF_PROG_TYPE_EXT`) from this process.
/// Hardened kernels refuse extensions before they look at the arguments. This trial extends no
/// program, so other kernels refuse it as well, but with another error.
pub fn takes_extensions() -> bool {
    #[repr(C)]
    struct ExtensionAttr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
    }
    let pass = asm::pass_program(0);
    let mut attr = ExtensionAttr {
        // BPF_PROG_TYPE_EXT
        prog_type: 28,
        insn_cnt: pass.len() as u32,
        insns: address(&pass),
        license: c"GPL".as_ptr() as u64,
    };
    let refused = bpf_fd(bpf_cmd::BPF_PROG_LOAD, &mut attr).err();
    refused.is_none_or(|error| error.raw_os_error() != Some(libc::EPERM))
}

/// The identity of a program. While the program lives, no other program has its id, and no program
/// with other instructions has its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgIdentity {
    pub id: u32,
    pub tag: [u8; 8],
}

/// Reads the kernel's description of a program, and as many ids of its maps as `maps` has room for.
fn prog_info(prog: BorrowedFd<'_>, maps: &mut [u32]) -> io::Result<bpf_prog_info> {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    (info.nr_map_ids, info.map_ids) = (maps.len() as u32, address_mut(maps));
    fill_info(prog, &mut info)?;
    Ok(info)
}

pub fn prog_identity(prog: BorrowedFd<'_>) -> io::Result<ProgIdentity> {
    let info = prog_info(prog, &mut [])?;
    Ok(ProgIdentity {
        id: info.id,
        tag: info.tag,
    })
}

/// Reads a program's id and the ids of the maps it uses.
pub fn prog_ids(prog: BorrowedFd<'_>) -> io::Result<(u32, Vec<u32>)> {
    let info = prog_info(prog, &mut [])?;
    let mut maps = vec![0; info.nr_map_ids as usize];
    prog_info(prog, &mut maps)?;
    Ok((info.id, maps))
}

/// Returns at most `most` of the first instructions of a program, as the verifier has translated
/// them. The result is empty if this kernel does not show them.
pub fn prog_translated(prog: BorrowedFd<'_>, most: usize) -> io::Result<Vec<[u8; 8]>> {
    let mut instructions = vec![[0_u8; 8]; most];
    // SAFETY: a structure of integers, for which zero is a value.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    info.xlated_prog_len = (8 * most) as u32;
    info.xlated_prog_insns = address_mut(&mut instructions);
    fill_info(prog, &mut info)?;
    // The kernel clears the address if this process may not see the instructions.
    let shown = if info.xlated_prog_insns == 0 {
        0
    } else {
        info.xlated_prog_len as usize / 8
    };
    instructions.truncate(shown);
    Ok(instructions)
}

/// Returns the addresses of the machine code of a program's functions. The result is empty if the
/// kernel does not show them.
pub fn prog_functions(prog: BorrowedFd<'_>) -> io::Result<Vec<Range<u64>>> {
    let count = prog_info(prog, &mut [])?.nr_jited_ksyms as usize;
    let (mut starts, mut lengths) = (vec![0_u64; count], vec![0_u32; count]);
    // SAFETY: a structure of integers, for which zero is a value.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    (info.nr_jited_ksyms, info.jited_ksyms) = (count as u32, address_mut(&mut starts));
    (info.nr_jited_func_lens, info.jited_func_lens) = (count as u32, address_mut(&mut lengths));
    fill_info(prog, &mut info)?;
    let functions = starts
        .into_iter()
        .zip(lengths)
        .filter(|(start, _)| *start != 0);
    Ok(functions
        .map(|(start, length)| start..start + u64::from(length))
        .collect())
}

/// The runs of a program that the kernel has counted while a descriptor from [`enable_statistics`]
/// was open.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgRuns {
    pub nanoseconds: u64,
    pub runs: u64,
}

/// Reads the runs that the kernel has counted so far.
pub fn prog_runs(prog: BorrowedFd<'_>) -> io::Result<ProgRuns> {
    let info = prog_info(prog, &mut [])?;
    Ok(ProgRuns {
        nanoseconds: info.run_time_ns,
        runs: info.run_cnt,
    })
}

/// Lets the kernel count the runs of all programs until the descriptor is closed (Linux 5.8). Needs
/// CAP_SYS_ADMIN.
pub fn enable_statistics() -> io::Result<OwnedFd> {
    // BPF_STATS_RUN_TIME
    bpf_fd(bpf_cmd::BPF_ENABLE_STATS, &mut 0_u32)
}

/// The outcome of a run of a program.
#[derive(Clone, Copy, Debug)]
pub struct TestRun {
    pub result: u32,
    pub nanoseconds: u32,
    /// The size of the packet after the run, in bytes.
    pub size: usize,
}

/// Runs a program once on `packet` by `BPF_PROG_TEST_RUN`, on this CPU. The kernel writes the
/// packet as the program has left it to `after`, and the packet's metadata to `context`, which must
/// be empty for XDP. An empty buffer gets no content. A packet that does not fit into its buffer is
/// an error.
pub fn prog_test_run(
    prog: BorrowedFd<'_>,
    packet: &[u8],
    after: &mut [u8],
    context: &mut [u8],
) -> io::Result<TestRun> {
    #[repr(C)]
    #[derive(Default)]
    struct TestRunAttr {
        prog_fd: u32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        ctx_size_in: u32,
        ctx_size_out: u32,
        ctx_in: u64,
        ctx_out: u64,
        /// Fields for flags and CPU, which stay zero.
        rest: u64,
    }
    let mut attr = TestRunAttr {
        prog_fd: prog.as_raw_fd() as u32,
        data_size_in: packet.len() as u32,
        data_size_out: after.len() as u32,
        data_in: address(packet),
        data_out: address_mut(after),
        repeat: 1,
        ctx_size_out: context.len() as u32,
        ctx_out: address_mut(context),
        ..TestRunAttr::default()
    };
    bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr)?;
    Ok(TestRun {
        result: attr.retval,
        nanoseconds: attr.duration,
        size: attr.data_size_out as usize,
    })
}
