//! Random programs on the kernel: programs that the analysis admits leave each frame unchanged.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya_obj::generated::{bpf_cmd, bpf_insn};
use twinprobe_ebpf_common::hook::ProgramKind;

use crate::admit::flow;
use crate::admit::tests::generator::{AREA, Random, program};
use crate::attach::dispatcher::program::DebugInfo;
use crate::sys::call::{self, address, address_mut};
use crate::sys::map::{MapCreate, map_create};
use crate::sys::prog::{self, ProgLoad};

/// The frames that each program runs on.
const FRAMES: usize = 2;

/// The outcomes of the programs of a run.
#[derive(Debug, Default)]
struct Figures {
    made: u64,
    /// The programs that were admitted, that the kernel accepted, and that ran.
    admitted: u64,
    /// The programs that the analysis refused although the kernel accepted and ran them.
    refused: u64,
    /// The refused programs that changed a frame.
    changed: u64,
    not_accepted: u64,
}

/// Loads a program; `None` if the kernel refuses it. Only functions with types can be called back.
fn load(kind: ProgramKind, instructions: &[bpf_insn], functions: &[usize]) -> Option<OwnedFd> {
    let debug_info = DebugInfo::new(functions);
    let btf = prog::btf_load(&debug_info.btf).unwrap();
    let program = ProgLoad {
        btf: Some(btf.as_fd()),
        func_info: debug_info.records(),
        ..ProgLoad::new("tp_random", kind, instructions)
    };
    prog::prog_load(&program, None).ok()
}

/// Runs a program on a frame, and returns the resulting frame.
fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<Vec<u8>> {
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
        rest: [u64; 4],
    }
    let mut out = vec![0; frame.len() + 256];
    let mut attr = Attr {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_size_out: out.len() as u32,
        data_in: address(frame),
        data_out: address_mut(&mut out),
        repeat: 1,
        ..Attr::default()
    };
    call::bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr)?;
    out.truncate(attr.data_size_out as usize);
    Ok(out)
}

fn frame(random: &mut Random) -> Vec<u8> {
    let length = AREA as usize + random.below(200);
    let mut frame: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    // An IPv4 packet for another host: the kernel reads this much of a packet before it runs a TC
    // program.
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame
}

#[test]
fn programs_that_are_admitted_change_no_frame() {
    let mut random = super::random();
    let map = MapCreate {
        name: "random",
        map_type: 2,
        key_size: 4,
        value_size: 128,
        max_entries: 1,
        ..MapCreate::default()
    };
    let map = map_create(&map).unwrap();
    let mut figures = Figures::default();
    let wanted = super::scaled(2000, 100_000);
    while figures.admitted < wanted {
        let kind = [ProgramKind::Xdp, ProgramKind::Tc][random.below(2)];
        let (instructions, functions) = program(&mut random, map.as_fd(), kind);
        figures.made += 1;
        let acts = flow::conduct(&instructions, kind, &[]).acts;
        let Some(loaded) = load(kind, &instructions, &functions) else {
            figures.not_accepted += 1;
            continue;
        };
        let frames: Vec<_> = (0..FRAMES).map(|_| frame(&mut random)).collect();
        let changes = frames
            .iter()
            .any(|frame| run(loaded.as_fd(), frame).unwrap() != *frame);
        if acts.is_empty() {
            assert!(
                !changes,
                "program {} at {kind:?}: {instructions:#?}",
                figures.made
            );
            figures.admitted += 1;
        } else {
            figures.refused += 1;
            figures.changed += u64::from(changes);
        }
    }
    println!("{figures:?}");
    // The generator must make programs that write: without the analysis many of them would change a
    // frame.
    assert!(figures.changed * 3 > figures.refused, "{figures:?}");
    assert!(figures.refused * 4 > figures.admitted, "{figures:?}");
}
