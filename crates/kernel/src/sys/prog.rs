//! Commands for programs and their debug information.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use aya_obj::generated::{bpf_cmd, bpf_insn, bpf_prog_info};
use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::sys::call::{address, address_mut, bpf, bpf_fd, object_name};
use crate::sys::object::fill_info;

pub fn btf_load(blob: &[u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        btf: u64,
        log_buf: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        log_true_size: u32,
    }
    let mut attr = Attr { btf: address(blob), size: blob.len() as u32, ..Attr::default() };
    bpf_fd(bpf_cmd::BPF_BTF_LOAD, &mut attr)
}

/// Fixed-size records of BTF debug information: `record_size` bytes each.
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
    pub license: &'a CStr,
    pub instructions: &'a [bpf_insn],
    pub btf: Option<BorrowedFd<'a>>,
    pub func_info: InfoRecords<'a>,
    pub line_info: InfoRecords<'a>,
}

impl<'a> ProgLoad<'a> {
    /// A program of the daemon's own, without flags and debug information.
    pub fn new(name: &'a str, kind: ProgramKind, instructions: &'a [bpf_insn]) -> Self {
        let (license, none) = (c"GPL", InfoRecords::default());
        Self { name, kind, flags: 0, license, instructions, btf: None, func_info: none, line_info: none }
    }
}

/// Loads a program by `BPF_PROG_LOAD`. With `log`, the verifier writes its log there, ended by a NUL.
pub fn prog_load(program: &ProgLoad<'_>, log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
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
    let mut attr = Attr {
        prog_type: program.kind.prog_type(),
        insn_cnt: program.instructions.len() as u32,
        insns: address(program.instructions),
        license: program.license.as_ptr() as u64,
        prog_flags: program.flags,
        prog_name: object_name(program.name),
        expected_attach_type: program.kind.expected_attach_type(),
        ..Attr::default()
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
    if let Some(log) = log {
        attr.log_level = 1;
        attr.log_size = log.len() as u32;
        attr.log_buf = address_mut(log);
    }
    bpf_fd(bpf_cmd::BPF_PROG_LOAD, &mut attr)
}

/// The identity of a program: no other program has this id while it lives, and no other instructions have this tag.
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
    Ok(ProgIdentity { id: info.id, tag: info.tag })
}

/// Reads a program's id and the ids of the maps it uses.
pub fn prog_ids(prog: BorrowedFd<'_>) -> io::Result<(u32, Vec<u32>)> {
    let info = prog_info(prog, &mut [])?;
    let mut maps = vec![0; info.nr_map_ids as usize];
    prog_info(prog, &mut maps)?;
    Ok((info.id, maps))
}

/// Runs a program once on `data` by `BPF_PROG_TEST_RUN`, on this CPU. Returns its result.
pub fn prog_test_run(prog: BorrowedFd<'_>, data: &[u8]) -> io::Result<u32> {
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
        /// Fields for context, flags and CPU, which stay zero.
        rest: [u64; 4],
    }
    let mut attr = Attr {
        prog_fd: prog.as_raw_fd() as u32,
        data_size_in: data.len() as u32,
        data_in: address(data),
        repeat: 1,
        ..Attr::default()
    };
    bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval)
}
