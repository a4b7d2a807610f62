//! The helper functions of the kernel that a probe may call, and the effect of each on packets. A
//! function that is on no list is refused, for example each function that can read any memory of
//! the kernel.

pub mod names;

use aya_obj::generated::bpf_func_id as Id;
use twinprobe_ebpf_common::hook::ProgramKind;

/// The effect of a call of a helper function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The function leaves the packet, its metadata and its fate alone.
    Observes,
    /// The function concerns callbacks that run later.
    Timer,
    /// The function changes the packet, its metadata, its queue or its fate.
    Changes,
}

/// A function of the program that a helper function calls, any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The number of the argument with the function's address, 1 to 5.
    pub function: usize,
    /// The number of an argument of the helper function that it passes on to the called function,
    /// and the number of that argument in the called function.
    pub handed_on: Option<(usize, usize)>,
    /// The number of calls of the function; `None` if the calls come later.
    pub repeats: Option<CallCount>,
}

/// The number of calls of a function by a helper function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallCount {
    /// The number in the first argument of the helper function.
    First,
    /// One call for each entry of the map in the first argument.
    Entries,
}

/// The callee of a CO-RE relocation that does not fit this kernel. libbpf and aya put this call in
/// place of the instruction, and the kernel refuses programs that can reach it.
pub const POISON: u32 = 0x0bad_2310;

/// Helper functions for all hooks that observe.
const OBSERVE: [Id; 43] = [
    Id::BPF_FUNC_map_lookup_elem,
    Id::BPF_FUNC_map_update_elem,
    Id::BPF_FUNC_map_delete_elem,
    Id::BPF_FUNC_map_push_elem,
    Id::BPF_FUNC_map_pop_elem,
    Id::BPF_FUNC_map_peek_elem,
    Id::BPF_FUNC_map_lookup_percpu_elem,
    Id::BPF_FUNC_ktime_get_ns,
    Id::BPF_FUNC_ktime_get_boot_ns,
    Id::BPF_FUNC_ktime_get_coarse_ns,
    Id::BPF_FUNC_ktime_get_tai_ns,
    Id::BPF_FUNC_jiffies64,
    Id::BPF_FUNC_get_prandom_u32,
    Id::BPF_FUNC_get_smp_processor_id,
    Id::BPF_FUNC_get_numa_node_id,
    Id::BPF_FUNC_trace_printk,
    Id::BPF_FUNC_trace_vprintk,
    Id::BPF_FUNC_perf_event_output,
    Id::BPF_FUNC_ringbuf_output,
    Id::BPF_FUNC_ringbuf_reserve,
    Id::BPF_FUNC_ringbuf_submit,
    Id::BPF_FUNC_ringbuf_discard,
    Id::BPF_FUNC_ringbuf_query,
    Id::BPF_FUNC_ringbuf_reserve_dynptr,
    Id::BPF_FUNC_ringbuf_submit_dynptr,
    Id::BPF_FUNC_ringbuf_discard_dynptr,
    Id::BPF_FUNC_dynptr_from_mem,
    Id::BPF_FUNC_dynptr_read,
    Id::BPF_FUNC_dynptr_write,
    Id::BPF_FUNC_dynptr_data,
    Id::BPF_FUNC_spin_lock,
    Id::BPF_FUNC_spin_unlock,
    Id::BPF_FUNC_strncmp,
    Id::BPF_FUNC_csum_diff,
    Id::BPF_FUNC_fib_lookup,
    Id::BPF_FUNC_check_mtu,
    Id::BPF_FUNC_sk_lookup_tcp,
    Id::BPF_FUNC_sk_lookup_udp,
    Id::BPF_FUNC_skc_lookup_tcp,
    Id::BPF_FUNC_sk_release,
    Id::BPF_FUNC_tcp_check_syncookie,
    Id::BPF_FUNC_for_each_map_elem,
    Id::BPF_FUNC_loop,
];

/// Helper functions for XDP that observe.
const OBSERVE_XDP: [Id; 2] = [Id::BPF_FUNC_xdp_get_buff_len, Id::BPF_FUNC_xdp_load_bytes];

/// Helper functions for TC that observe. `bpf_skb_pull_data` moves bytes in memory and changes
/// none.
const OBSERVE_TC: [Id; 24] = [
    Id::BPF_FUNC_skb_load_bytes,
    Id::BPF_FUNC_skb_load_bytes_relative,
    Id::BPF_FUNC_skb_pull_data,
    Id::BPF_FUNC_skb_get_tunnel_key,
    Id::BPF_FUNC_skb_get_tunnel_opt,
    Id::BPF_FUNC_skb_get_xfrm_state,
    Id::BPF_FUNC_skb_under_cgroup,
    Id::BPF_FUNC_skb_cgroup_id,
    Id::BPF_FUNC_skb_ancestor_cgroup_id,
    Id::BPF_FUNC_skb_cgroup_classid,
    Id::BPF_FUNC_get_cgroup_classid,
    Id::BPF_FUNC_get_route_realm,
    Id::BPF_FUNC_get_socket_cookie,
    Id::BPF_FUNC_get_socket_uid,
    Id::BPF_FUNC_get_netns_cookie,
    Id::BPF_FUNC_sk_fullsock,
    Id::BPF_FUNC_tcp_sock,
    Id::BPF_FUNC_get_listener_sock,
    Id::BPF_FUNC_sk_cgroup_id,
    Id::BPF_FUNC_sk_ancestor_cgroup_id,
    Id::BPF_FUNC_skc_to_tcp_sock,
    Id::BPF_FUNC_skc_to_tcp6_sock,
    Id::BPF_FUNC_skc_to_tcp_timewait_sock,
    Id::BPF_FUNC_skc_to_udp6_sock,
];

/// Helper functions that start timers.
const TIMERS: [Id; 4] = [
    Id::BPF_FUNC_timer_init,
    Id::BPF_FUNC_timer_set_callback,
    Id::BPF_FUNC_timer_start,
    Id::BPF_FUNC_timer_cancel,
];

/// Helper functions for XDP that change packets or their fate.
const CHANGE_XDP: [Id; 6] = [
    Id::BPF_FUNC_redirect,
    Id::BPF_FUNC_redirect_map,
    Id::BPF_FUNC_xdp_adjust_head,
    Id::BPF_FUNC_xdp_adjust_tail,
    Id::BPF_FUNC_xdp_adjust_meta,
    Id::BPF_FUNC_xdp_store_bytes,
];

/// Helper functions for TC that change packets, their metadata or their fate. A call for the hash
/// computes a missing hash.
const CHANGE_TC: [Id; 24] = [
    Id::BPF_FUNC_redirect,
    Id::BPF_FUNC_redirect_neigh,
    Id::BPF_FUNC_redirect_peer,
    Id::BPF_FUNC_clone_redirect,
    Id::BPF_FUNC_skb_store_bytes,
    Id::BPF_FUNC_l3_csum_replace,
    Id::BPF_FUNC_l4_csum_replace,
    Id::BPF_FUNC_csum_update,
    Id::BPF_FUNC_csum_level,
    Id::BPF_FUNC_skb_vlan_push,
    Id::BPF_FUNC_skb_vlan_pop,
    Id::BPF_FUNC_skb_set_tunnel_key,
    Id::BPF_FUNC_skb_set_tunnel_opt,
    Id::BPF_FUNC_skb_change_proto,
    Id::BPF_FUNC_skb_change_type,
    Id::BPF_FUNC_skb_change_head,
    Id::BPF_FUNC_skb_change_tail,
    Id::BPF_FUNC_skb_adjust_room,
    Id::BPF_FUNC_skb_ecn_set_ce,
    Id::BPF_FUNC_skb_set_tstamp,
    Id::BPF_FUNC_get_hash_recalc,
    Id::BPF_FUNC_set_hash,
    Id::BPF_FUNC_set_hash_invalid,
    Id::BPF_FUNC_sk_assign,
];

/// The memory that helper functions write to: the number of the function and of its argument (1 to
/// 5), the number of bytes, and whether the function writes all of these bytes even if it fails.
const WRITTEN: [(Id, usize, Bytes, bool); 14] = [
    (Id::BPF_FUNC_map_pop_elem, 2, Bytes::Value, true),
    (Id::BPF_FUNC_map_peek_elem, 2, Bytes::Value, true),
    (
        Id::BPF_FUNC_ringbuf_reserve_dynptr,
        4,
        Bytes::Exactly(16),
        false,
    ),
    (Id::BPF_FUNC_dynptr_from_mem, 1, Bytes::Argument(2), false),
    (Id::BPF_FUNC_dynptr_from_mem, 4, Bytes::Exactly(16), false),
    (Id::BPF_FUNC_dynptr_read, 1, Bytes::Argument(2), false),
    (Id::BPF_FUNC_fib_lookup, 2, Bytes::Argument(3), false),
    (Id::BPF_FUNC_check_mtu, 3, Bytes::Exactly(4), false),
    (Id::BPF_FUNC_xdp_load_bytes, 3, Bytes::Argument(4), false),
    (Id::BPF_FUNC_skb_load_bytes, 3, Bytes::Argument(4), true),
    (
        Id::BPF_FUNC_skb_load_bytes_relative,
        3,
        Bytes::Argument(4),
        true,
    ),
    (Id::BPF_FUNC_skb_get_tunnel_key, 2, Bytes::Argument(3), true),
    (Id::BPF_FUNC_skb_get_tunnel_opt, 2, Bytes::Argument(3), true),
    (Id::BPF_FUNC_skb_get_xfrm_state, 3, Bytes::Argument(4), true),
];

/// The number of bytes that a helper function reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// A key, or a value, of the map that is the first argument.
    Key,
    Value,
    /// The number in this argument, 1 to 5.
    Argument(usize),
    Exactly(u32),
}

/// The memory that helper functions read and pass on, so that a program, a client or the network
/// can see the bytes later: the number of the function and of its argument, and the number of
/// bytes.
const COPIED: [(Id, usize, Bytes); 20] = [
    (Id::BPF_FUNC_map_lookup_elem, 2, Bytes::Key),
    (Id::BPF_FUNC_map_lookup_percpu_elem, 2, Bytes::Key),
    (Id::BPF_FUNC_map_delete_elem, 2, Bytes::Key),
    (Id::BPF_FUNC_map_update_elem, 2, Bytes::Key),
    (Id::BPF_FUNC_map_update_elem, 3, Bytes::Value),
    (Id::BPF_FUNC_map_push_elem, 2, Bytes::Value),
    (Id::BPF_FUNC_map_peek_elem, 2, Bytes::Value),
    (Id::BPF_FUNC_perf_event_output, 4, Bytes::Argument(5)),
    (Id::BPF_FUNC_ringbuf_output, 2, Bytes::Argument(3)),
    (Id::BPF_FUNC_trace_printk, 1, Bytes::Argument(2)),
    (Id::BPF_FUNC_trace_vprintk, 3, Bytes::Argument(4)),
    (Id::BPF_FUNC_dynptr_write, 3, Bytes::Argument(4)),
    (Id::BPF_FUNC_csum_diff, 1, Bytes::Argument(2)),
    (Id::BPF_FUNC_csum_diff, 3, Bytes::Argument(4)),
    (Id::BPF_FUNC_strncmp, 1, Bytes::Argument(2)),
    (Id::BPF_FUNC_skb_store_bytes, 3, Bytes::Argument(4)),
    (Id::BPF_FUNC_xdp_store_bytes, 3, Bytes::Argument(4)),
    (Id::BPF_FUNC_skb_set_tunnel_key, 2, Bytes::Argument(3)),
    (Id::BPF_FUNC_skb_set_tunnel_opt, 2, Bytes::Argument(3)),
    (Id::BPF_FUNC_redirect_neigh, 2, Bytes::Argument(3)),
];

/// The numbers that helper functions show to clients or the network, or return: the number of the
/// function, and of the first and the last argument with such a number.
const SHOWN: [(Id, usize, usize); 18] = [
    (Id::BPF_FUNC_trace_printk, 3, 5),
    (Id::BPF_FUNC_perf_event_output, 5, 5),
    (Id::BPF_FUNC_ringbuf_output, 3, 3),
    (Id::BPF_FUNC_csum_diff, 5, 5),
    (Id::BPF_FUNC_redirect, 1, 2),
    (Id::BPF_FUNC_redirect_map, 2, 3),
    (Id::BPF_FUNC_redirect_neigh, 1, 1),
    (Id::BPF_FUNC_redirect_peer, 1, 2),
    (Id::BPF_FUNC_clone_redirect, 2, 3),
    (Id::BPF_FUNC_l3_csum_replace, 2, 5),
    (Id::BPF_FUNC_l4_csum_replace, 2, 5),
    (Id::BPF_FUNC_csum_update, 2, 2),
    (Id::BPF_FUNC_skb_vlan_push, 2, 3),
    (Id::BPF_FUNC_skb_change_type, 2, 2),
    (Id::BPF_FUNC_skb_change_tail, 2, 3),
    (Id::BPF_FUNC_skb_adjust_room, 2, 4),
    (Id::BPF_FUNC_skb_set_tstamp, 2, 3),
    (Id::BPF_FUNC_set_hash, 2, 2),
];

/// Helper functions that return either a null pointer, or a pointer to memory that programs may
/// read.
const POINTERS: [Id; 10] = [
    Id::BPF_FUNC_map_lookup_elem,
    Id::BPF_FUNC_map_lookup_percpu_elem,
    Id::BPF_FUNC_ringbuf_reserve,
    Id::BPF_FUNC_dynptr_data,
    Id::BPF_FUNC_sk_lookup_tcp,
    Id::BPF_FUNC_sk_lookup_udp,
    Id::BPF_FUNC_skc_lookup_tcp,
    Id::BPF_FUNC_sk_fullsock,
    Id::BPF_FUNC_tcp_sock,
    Id::BPF_FUNC_get_listener_sock,
];

/// Helper functions that return a pointer to a structure of the kernel (`PTR_TO_BTF_ID` of the
/// verifier), or null.
const STRUCTURES: [Id; 4] = [
    Id::BPF_FUNC_skc_to_tcp_sock,
    Id::BPF_FUNC_skc_to_tcp6_sock,
    Id::BPF_FUNC_skc_to_tcp_timewait_sock,
    Id::BPF_FUNC_skc_to_udp6_sock,
];

/// Helper functions that leave a dynptr on the stack: the number of the function and of its
/// argument. A dynptr contains an address.
const DYNPTRS: [(Id, usize); 2] = [
    (Id::BPF_FUNC_dynptr_from_mem, 4),
    (Id::BPF_FUNC_ringbuf_reserve_dynptr, 4),
];

/// Helper functions that may move the packet (`bpf_helper_changes_pkt_data` in `net/core/filter.c`
/// of the kernel).
const MOVES: [Id; 14] = [
    Id::BPF_FUNC_skb_pull_data,
    Id::BPF_FUNC_clone_redirect,
    Id::BPF_FUNC_l3_csum_replace,
    Id::BPF_FUNC_l4_csum_replace,
    Id::BPF_FUNC_skb_adjust_room,
    Id::BPF_FUNC_skb_change_head,
    Id::BPF_FUNC_skb_change_proto,
    Id::BPF_FUNC_skb_change_tail,
    Id::BPF_FUNC_skb_store_bytes,
    Id::BPF_FUNC_skb_vlan_pop,
    Id::BPF_FUNC_skb_vlan_push,
    Id::BPF_FUNC_xdp_adjust_head,
    Id::BPF_FUNC_xdp_adjust_meta,
    Id::BPF_FUNC_xdp_adjust_tail,
];

/// Helper functions that add entries to a map.
const INSERTS: [Id; 2] = [Id::BPF_FUNC_map_update_elem, Id::BPF_FUNC_map_push_elem];

/// The result of a helper function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    Number,
    /// A pointer to memory or to a socket, or null. The kernel lets programs read some fields of a
    /// socket.
    Pointer,
    /// A pointer to a structure of the kernel, or null.
    Structure,
}

/// Returns the kind of result that a helper function gives.
pub fn result(number: u32) -> Result {
    let is_in = |list: &[Id]| list.iter().any(|id| *id as u32 == number);
    match () {
        () if is_in(&STRUCTURES) => Result::Structure,
        () if is_in(&POINTERS) => Result::Pointer,
        () => Result::Number,
    }
}

/// Returns the arguments that point to memory which a helper function passes on, and the number of
/// bytes.
pub fn copied(number: u32) -> impl Iterator<Item = (usize, Bytes)> {
    COPIED
        .into_iter()
        .filter(move |(id, ..)| *id as u32 == number)
        .map(|(_, argument, bytes)| (argument, bytes))
}

/// Returns the number of bytes that a helper function reads.
pub fn sizes(number: u32) -> impl Iterator<Item = Bytes> {
    copied(number)
        .map(|(_, bytes)| bytes)
        .chain(written(number).map(|(_, bytes, _)| bytes))
}

/// Returns the arguments whose numbers clients, the network or the program can see.
pub fn shown(number: u32) -> impl Iterator<Item = usize> {
    SHOWN
        .into_iter()
        .filter(move |(id, ..)| *id as u32 == number)
        .flat_map(|(_, first, last)| first..=last)
}

/// Returns the argument through which a helper function leaves a dynptr on the stack.
pub fn dynptr(number: u32) -> Option<usize> {
    DYNPTRS
        .into_iter()
        .find(|(id, _)| *id as u32 == number)
        .map(|(_, argument)| argument)
}

/// Tells whether a helper function may move the packet, so that existing pointers to the packet
/// become stale.
pub fn moves_packet(number: u32) -> bool {
    MOVES.iter().any(|id| *id as u32 == number)
}

/// Tells whether a helper function adds entries to the map that is its first argument.
pub fn inserts(number: u32) -> bool {
    INSERTS.iter().any(|id| *id as u32 == number)
}

/// Tells whether a helper function reads the first value of a map, or looks for one in a Bloom
/// filter.
pub const fn peeks(number: u32) -> bool {
    number == Id::BPF_FUNC_map_peek_elem as u32
}

/// Tells whether a helper function starts a timer.
pub const fn starts_timer(number: u32) -> bool {
    number == Id::BPF_FUNC_timer_start as u32
}

/// Returns the lists of helper functions of a hook: those that observe, and those that change
/// packets.
const fn of_hook(kind: ProgramKind) -> (&'static [Id], &'static [Id]) {
    match kind {
        ProgramKind::Xdp => (&OBSERVE_XDP, &CHANGE_XDP),
        ProgramKind::Tc => (&OBSERVE_TC, &CHANGE_TC),
    }
}

/// Returns the effect and the name of a helper function; `None` if no probe may call it.
pub fn effect(number: u32, kind: ProgramKind) -> Option<(Effect, String)> {
    let (observe, change) = of_hook(kind);
    let lists = [
        (&OBSERVE[..], Effect::Observes),
        (observe, Effect::Observes),
        (&TIMERS[..], Effect::Timer),
        (change, Effect::Changes),
    ];
    lists.into_iter().find_map(|(list, effect)| {
        let id = list.iter().find(|id| **id as u32 == number)?;
        Some((effect, format!("{id:?}").replace("BPF_FUNC_", "bpf_")))
    })
}

/// Returns the arguments that point to memory which a helper function writes to, the number of
/// bytes, and whether the function writes all of them in any case.
pub fn written(number: u32) -> impl Iterator<Item = (usize, Bytes, bool)> {
    WRITTEN
        .into_iter()
        .filter(move |(id, ..)| *id as u32 == number)
        .map(|(_, argument, bytes, surely)| (argument, bytes, surely))
}

/// Returns the function that a helper function calls.
pub fn callback(number: u32) -> Option<Callback> {
    let (handed_on, repeats) = match number {
        _ if number == Id::BPF_FUNC_for_each_map_elem as u32 => {
            (Some((3, 4)), Some(CallCount::Entries))
        }
        _ if number == Id::BPF_FUNC_loop as u32 => (Some((3, 2)), Some(CallCount::First)),
        _ if number == Id::BPF_FUNC_timer_set_callback as u32 => (None, None),
        _ => return None,
    };
    Some(Callback {
        function: 2,
        handed_on,
        repeats,
    })
}
