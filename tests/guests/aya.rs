//! A program for aya, in Rust. `aya.o` is its object, made by aya-ebpf 0.1.1 and bpf-linker 0.13.0
//! (LLVM 22) of a nightly Rust, with `-Z build-std=core --target bpfel-unknown-none`, `-C
//! debuginfo=2 -C link-arg=--btf` and `llvm-strip -g`.
#![no_std]
#![no_main]

use aya_ebpf::bindings::{TC_ACT_OK, xdp_action};
use aya_ebpf::macros::{classifier, map, xdp};
use aya_ebpf::maps::{Array, HashMap, PerCpuArray};
use aya_ebpf::programs::{TcContext, XdpContext};

#[map]
static PACKETS: Array<u64> = Array::with_max_entries(1, 0);
#[map]
static PROTOCOLS: HashMap<u16, u64> = HashMap::with_max_entries(64, 0);
#[map]
static BYTES: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

#[unsafe(no_mangle)]
static LEAST: u32 = 14;

#[inline(always)]
fn add(map: &Array<u64>, count: u64) {
    if let Some(sum) = map.get_ptr_mut(0) {
        // SAFETY: the entry exists as long as the program.
        unsafe { *sum += count };
    }
}

fn protocol(data: usize, end: usize) -> Result<u16, ()> {
    if data + 14 > end {
        return Err(());
    }
    // SAFETY: the check above covers these bytes.
    Ok(u16::from_be(unsafe { *((data + 12) as *const u16) }))
}

fn see(data: usize, end: usize) -> Result<(), ()> {
    // SAFETY: the loader sets this static.
    let least = unsafe { core::ptr::read_volatile(&LEAST) };
    if ((end - data) as u32) < least {
        return Ok(());
    }
    add(&PACKETS, 1);
    let protocol = protocol(data, end)?;
    match PROTOCOLS.get_ptr_mut(&protocol) {
        // SAFETY: the verifier lets the program use an entry that it has found.
        Some(count) => unsafe { *count += 1 },
        None => PROTOCOLS.insert(&protocol, &1, 0).map_err(|_| ())?,
    }
    if let Some(bytes) = BYTES.get_ptr_mut(0) {
        // SAFETY: the entry exists as long as the program.
        unsafe { *bytes += (end - data) as u64 };
    }
    Ok(())
}

#[xdp]
pub fn at_xdp(ctx: XdpContext) -> u32 {
    let _ = see(ctx.data(), ctx.data_end());
    xdp_action::XDP_PASS
}

#[classifier]
pub fn at_tc(ctx: TcContext) -> i32 {
    let _ = see(ctx.data(), ctx.data_end());
    TC_ACT_OK as i32
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
