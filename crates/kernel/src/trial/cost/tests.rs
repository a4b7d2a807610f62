//! Trials of compiled programs on this kernel.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use twinprobe_ebpf_common::hook::{Hook, Position, XdpMode};
use twinprobe_ebpf_common::metric::OnReplace;

use super::*;
use crate::plan::build;
use crate::plan::map_spec::MapSpec;
use crate::plan::request::{DirectionRequest, KernelFacts, KernelOptions};
use crate::plan::tests::scene;
use crate::sys::cpus;
use twinprobe_ebpf_common::request::AttachRequest;

const HELPERS: &str = r#"
typedef unsigned char u8;
typedef unsigned short u16;
struct xdp_md { u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex; };
struct __sk_buff { u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority,
    ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end; };
static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*store_bytes)(struct __sk_buff *skb, u32 offset, const void *from, u32 len, u64 flags) = (void *)9;
static long (*clone_redirect)(struct __sk_buff *skb, u32 ifindex, u64 flags) = (void *)13;
static long (*change_tail)(struct __sk_buff *skb, u32 len, u64 flags) = (void *)38;
static long (*adjust_head)(struct xdp_md *xdp, int delta) = (void *)44;
static long (*adjust_tail)(struct xdp_md *xdp, int delta) = (void *)65;
static long (*push)(void *map, const void *value, u64 flags) = (void *)87;
static long (*loop)(u32 times, void *function, void *context, u64 flags) = (void *)181;
static long (*ringbuf_output)(void *ringbuf, void *data, u64 size, u64 flags) = (void *)130;
#define PACKET(ctx) u8 *packet = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end; if (packet + 14 > end) return 0
char LICENSE[] SEC("license") = "GPL";
"#;

/// Compiles each source once.
fn compiled(source: String) -> Vec<u8> {
    static KNOWN: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let known = KNOWN.lock().get(&source).cloned();
    known.unwrap_or_else(|| {
        let object = scene::compile(&source);
        KNOWN.lock().insert(source, object.clone());
        object
    })
}

/// Compiles and plans a source that has one function body for the hook.
fn planned(hook: Hook, verdict: Verdict, before: &str, body: &str) -> (DirectionPlan, ProbeObject) {
    let context = if hook.kind().has_skb() {
        "struct __sk_buff"
    } else {
        "struct xdp_md"
    };
    let section = hook.kind().section();
    let source = format!(
        "{HELPERS}\n{before}\nSEC(\"{section}\") int entry({context} *ctx) {{ {body}\nreturn 0; }}\n"
    );
    let facts = KernelFacts {
        possible_cpus: cpus::possible_cpus().unwrap(),
        page_size: rustix::param::page_size(),
        monotonic_zero_ns: 0,
        btf: aya::features().btf(),
        xdp_frags: true,
        options: KernelOptions::NONE,
    };
    let object = ProbeObject::parse(&compiled(source), hook, None, facts).unwrap();
    let (xdp_mode, position) = (XdpMode::Auto, Position::Last);
    let request = DirectionRequest {
        entry: None,
        variables: BTreeMap::new(),
        max_entries: BTreeMap::new(),
        fill: Arc::default(),
        anew: Default::default(),
        code: format!("{}.source", hook.direction()),
        attach: AttachRequest {
            hook,
            xdp_mode,
            verdict,
            sample: None,
            priority: 0,
            position,
        },
        on_replace: OnReplace::Carry,
        metrics: Vec::new(),
        places: BTreeMap::new(),
    };
    let (plan, _) = build::directions([(request, &object.defined)], &[], facts)
        .remove(0)
        .unwrap();
    (plan, object)
}

fn tried(
    hook: Hook,
    verdict: Verdict,
    before: &str,
    body: &str,
) -> Result<DirectionCost, Rejection> {
    let (plan, object) = planned(hook, verdict, before, body);
    cost(&plan, &object, cpus::possible_cpus().unwrap())
}

const HASH: &str = "struct { __uint(type, 1); __uint(max_entries, 1 << 20); __type(key, u64); __type(value, u64); } flows SEC(\".maps\");";
const COUNT: &str = "u64 key = ctx->ingress_ifindex, one = 1, *n = lookup(&flows, &key); if (n) ++*n; else update(&flows, &key, &one, 0);";

#[test]
fn programs_that_only_read_are_admitted_at_every_hook() {
    for hook in Hook::ALL {
        let read = "PACKET(ctx); u64 sum = 0; for (int i = 0; i < 14; i++) sum += packet[i]; packet += 14; u8 copy[8] = {0}; copy[0] = sum; if (copy[0] == 77) return 1;";
        for (before, body) in [("", ""), ("", read), (HASH, COUNT)] {
            for verdict in [Verdict::Observe, Verdict::Enforce] {
                let cost = tried(hook, verdict, before, body).unwrap();
                let run = cost.run.unwrap();
                assert!(
                    (1..100_000).contains(&run.ns_per_packet),
                    "{hook:?} {body}: {run:?}"
                );
                assert!(
                    cost.instructions >= 2 && cost.verified >= 2,
                    "{hook:?} {body}"
                );
            }
        }
    }
}

/// The figures follow the work of the program: this loop takes hundreds of nanoseconds on any
/// machine.
#[test]
fn a_program_that_does_more_costs_more() {
    let body = "u64 x = ctx->ingress_ifindex; for (int i = 0; i < 2000; i++) { x = x * 31 + i; asm volatile(\"\" : \"+r\"(x)); } if (x == 7) return 1;";
    for hook in Hook::ALL {
        let (little, much) = (
            tried(hook, Verdict::Observe, "", "").unwrap(),
            tried(hook, Verdict::Observe, "", body).unwrap(),
        );
        let [little_ns, much_ns] =
            [&little, &much].map(|cost| cost.run.as_ref().unwrap().ns_per_packet);
        assert!(
            much_ns > 300 && much_ns > 5 * little_ns,
            "{hook:?}: {little_ns} and {much_ns}"
        );
        assert!(much.verified > little.verified + 2000, "{much:?}");
    }
}

#[test]
fn the_stack_is_that_of_the_deepest_chain_of_calls() {
    let function = |name: &str, size: usize, calls: &str| {
        format!(
            "static __attribute__((noinline)) int {name}(u64 x) {{ volatile u8 a[{size}]; a[x & 7] = x; {calls} return a[x & 3]; }}\n"
        )
    };
    let before = [
        function("deep", 96, ""),
        function("left", 32, "x = deep(x);"),
        function("right", 64, ""),
    ]
    .concat();
    let cost = tried(
        Hook::Xdp,
        Verdict::Observe,
        &before,
        "volatile u64 x = 1; return left(x) + right(x);",
    )
    .unwrap();
    assert!((128..200).contains(&cost.stack_bytes), "{cost:?}");
    assert_eq!(
        tried(Hook::Xdp, Verdict::Observe, "", "")
            .unwrap()
            .stack_bytes,
        0
    );
}

#[track_caller]
fn assert_refused(hook: Hook, body: &str, says: &str) {
    let Err(rejection) = tried(hook, Verdict::Observe, "", body) else {
        panic!("{hook:?} admitted: {body}")
    };
    let [finding] = &rejection.findings[..] else {
        panic!("{rejection:?}")
    };
    assert_eq!(finding.stage, Stage::Admission, "{finding:?}");
    assert_eq!(finding.field, Some(format!("{}.source", hook.direction())));
    assert!(
        finding.message.contains(says),
        "{hook:?} {body}: {}",
        finding.message
    );
    let enforced = tried(hook, Verdict::Enforce, "", body);
    assert!(enforced.is_ok_and(|cost| cost.run.is_some()), "{body}");
}

#[test]
fn an_observing_program_that_changes_a_sample_packet_is_refused() {
    assert_refused(
        Hook::Xdp,
        "PACKET(ctx); packet[13] ^= 1;",
        "content of a packet",
    );
    assert_refused(Hook::Xdp, "adjust_tail(ctx, -1);", "length of a packet");
    assert_refused(Hook::Xdp, "adjust_head(ctx, -4);", "length of a packet");
    for hook in [Hook::TcIngress, Hook::TcEgress] {
        assert_refused(
            hook,
            "u8 x = 0x5a; store_bytes(ctx, 3, &x, 1, 0);",
            "content of a packet",
        );
        assert_refused(
            hook,
            "change_tail(ctx, ctx->len + 8, 0);",
            "length of a packet",
        );
        for field in ["mark", "priority", "cb[3]"] {
            assert_refused(hook, &format!("ctx->{field} = 5;"), "metadata of a packet");
        }
    }
}

/// Only every fortieth run writes, so the trial must look at all runs.
#[test]
fn a_change_that_comes_late_is_found() {
    let before = "u64 runs;";
    let body = "PACKET(ctx); if (++runs % 40 == 0) packet[5] ^= 1;";
    let rejection = tried(Hook::Xdp, Verdict::Observe, before, body).unwrap_err();
    assert_eq!(rejection.findings[0].stage, Stage::Admission);
}

/// No sample packet has this protocol: the kernel's prologue tells that the program writes.
#[test]
fn at_tc_the_kernel_tells_of_writes_that_no_sample_gets_to() {
    let write = "PACKET(ctx); if (packet[12] == 0x99 && packet[13] == 0x99) packet[0] = 1;";
    let read = "PACKET(ctx); if (packet[12] == 0x99 && packet[13] == 0x99) return packet[0];";
    for hook in [Hook::TcIngress, Hook::TcEgress] {
        assert_refused(
            hook,
            write,
            "the kernel finds that the program writes to packets",
        );
        tried(hook, Verdict::Observe, "", read).unwrap();
    }
    // At XDP the kernel has no such prologue.
    tried(Hook::Xdp, Verdict::Observe, "", write).unwrap();
}

/// One of the programs would send a packet into the daemon's namespace. The others could keep a CPU
/// busy for long.
#[test]
fn programs_that_send_packets_or_have_no_end_are_not_run() {
    let nested = "static int inner(u64 i, u64 *x) { *x += i; return 0; }\n\
        static int outer(u64 i, u64 *x) { loop(30, inner, x, 0); return 0; }\n";
    let cases = [
        (Hook::TcIngress, "", "clone_redirect(ctx, 1, 0);", false),
        (
            Hook::Xdp,
            nested,
            "u64 x = 0; loop(30, outer, &x, 0);",
            true,
        ),
        (
            Hook::Xdp,
            nested,
            "u64 x = 0; loop(8000000, inner, &x, 0);",
            false,
        ),
        (
            Hook::Xdp,
            nested,
            "u64 x = 0; loop(limit, inner, &x, 0);",
            false,
        ),
    ];
    for (hook, before, body, is_run) in cases {
        let before = &format!("u64 limit = 3;\n{before}");
        let cost = match tried(hook, Verdict::Enforce, before, body) {
            // Kernels before Linux 5.17 have no bpf_loop.
            Err(rejection) if rejection.findings[0].message.contains("Invalid argument") => {
                continue;
            }
            cost => cost.unwrap(),
        };
        assert_eq!(cost.run.is_some(), is_run, "{body}: {cost:?}");
        assert!(cost.instructions > 2 && cost.verified > 2, "{cost:?}");
    }
}

/// Programs that put something into a map find room in each run, or the figures would be those of a
/// full map.
#[test]
fn streams_are_emptied_between_runs() {
    let maps = "struct { __uint(type, 27); __uint(max_entries, 4096); } events SEC(\".maps\");\n\
        struct { __uint(type, 22); __uint(max_entries, 8); __type(value, u64); } queue SEC(\".maps\");\n\
        struct { __uint(type, 23); __uint(max_entries, 8); __type(value, u64); } stack SEC(\".maps\");\n\
        u64 failures, runs;";
    let body = "u64 event[16] = {0}; failures += !!ringbuf_output(&events, event, sizeof(event), 0) + \
        !!push(&queue, event, 0) + !!push(&stack, event, 0); runs++;";
    let (plan, object) = planned(Hook::Xdp, Verdict::Observe, maps, body);
    let copy = Copy::load(copied(&plan, Some(2)), &object, "ingress.source").unwrap();
    let mut streams = copy.streams().unwrap();
    assert_eq!(streams.len(), 3);
    run(copy.program.as_fd(), Hook::Xdp, true, false, || {
        streams.iter_mut().try_for_each(FilledMap::empty)
    })
    .unwrap();
    let (_, fds) = copy.maps.by_name(".bss").unwrap();
    let mut values = [0; 16];
    map::map_lookup(fds.of_twin(0).as_fd(), &[0; 4], &mut values).unwrap();
    let [first, second] =
        [0, 8].map(|at| u64::from_ne_bytes(values[at..at + 8].try_into().unwrap()));
    // The compiler chooses the order of the two variables.
    assert_eq!(first.min(second), 0, "some runs found no room");
    assert!(first.max(second) >= 8, "{first} {second}");
}

/// A copy of large maps is small, and a program that the verifier takes only with the sizes of its
/// source is tried with them.
#[test]
fn large_maps_are_copied_small() {
    let (plan, _) = planned(Hook::Xdp, Verdict::Observe, HASH, COUNT);
    let cpus = cpus::possible_cpus().unwrap();
    let bytes = |plan: &DirectionPlan| {
        plan.maps
            .iter()
            .map(|map| map.spec.bytes(cpus))
            .sum::<u64>()
    };
    let mut large = copied(&plan, None);
    large.maps[0].spec.max_entries = u32::MAX;
    assert!(bytes(&large) > MAP_BYTES && bytes(&copied(&large, Some(cpus))) <= MAP_BYTES);
    assert_eq!(copied(&plan, None).maps[0].spec.max_entries, 1 << 20);
    let ring = MapSpec {
        map_type: 27,
        max_entries: 1 << 24,
        ..MapSpec::default()
    };
    large.maps = (0..17)
        .map(|_| MapPlan {
            spec: ring.clone(),
            ..large.maps[0].clone()
        })
        .collect();
    let small = copied(&large, Some(cpus));
    assert!(bytes(&small) <= COPY_BYTES && small.maps[0].spec.max_entries.is_power_of_two());
}
