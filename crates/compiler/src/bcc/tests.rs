//! Sources in the dialect of BCC, compiled by the clang of this machine.

use std::collections::BTreeMap;

use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_ebpf_common::hook::{Hook, Verdict};

use crate::compile::Compiler;
use crate::object::CompiledObject;
use twinprobe_ebpf_common::unit::{Calls, Dialect, Unit};

static NO_CALLS: Calls = Calls::new();

static NO_FILES: BTreeMap<String, String> = BTreeMap::new();

fn unit<'a>(hook: Hook, source: &'a str, defines: &'a BTreeMap<String, String>) -> Unit<'a> {
    let (dialect, verdict) = (Dialect::Auto, Verdict::Observe);
    Unit {
        field: "ingress.source",
        source,
        files: &NO_FILES,
        defines,
        dialect,
        entry: None,
        calls: &NO_CALLS,
        other: None,
        hook,
        verdict,
        frags: true,
    }
}

async fn compile(hook: Hook, source: &str) -> Result<CompiledObject, Rejection> {
    let defines = BTreeMap::new();
    Compiler::discover(false)
        .expect("the tests need clang")
        .compile(&unit(hook, source, &defines))
        .await
}

/// Returns the line and the message of the first finding.
async fn refused(hook: Hook, source: &str) -> (Option<u32>, String) {
    let mut rejection = compile(hook, source)
        .await
        .expect_err("this source must not compile");
    let first = rejection.findings.swap_remove(0);
    (first.line, first.message)
}

const TABLES: &str = r#"#include <uapi/linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/icmp.h>
#include <net/sock.h>
#include <bcc/proto.h>
#include <stdint.h>
struct key { u32 address; uint16_t port; u16 pad; };
struct leaf { u64 packets; u64 bytes; };
struct route { u32 bits; u32 address; };
BPF_HASH(a);
BPF_HASH(b, u32);
BPF_HASH(c, struct key, struct leaf, 64);
BPF_PERCPU_HASH(d, u32, u64, 64);
BPF_TABLE("lru_hash", struct key, struct leaf, e, 64);
BPF_TABLE("lru_percpu_hash", u32, u32, f, 64);
BPF_ARRAY(g);
BPF_ARRAY(h, u32);
BPF_PERCPU_ARRAY(i, struct leaf, 4);
BPF_HISTOGRAM(j);
BPF_HISTOGRAM(k, struct key);
BPF_LPM_TRIE(l, struct route, u64, 16);
BPF_F_TABLE("lpm_trie", struct route, u64, m, 16, BPF_F_NO_PREALLOC);
BPF_TABLE_SHARED("hash", u32, u64, n, 16)__attributes__((SWAP));
BPF_QUEUE(o, struct leaf, 16);
BPF_STACK(p, u32, 16, 0);
BPF_QUEUESTACK("queue", q, u32, 16, 0);
BPF_PERF_OUTPUT(r);
BPF_RINGBUF_OUTPUT(s, 8);
static __always_inline int handler(struct CTXTYPE *ctx, struct pkt_metadata *md)
{
    struct key key = { .address = md->length };
    struct leaf zero = {}, *leaf;
    struct route route = { 32, 1 };
    u32 one = 1, *small;
    u64 *n, wide = 1;
    n = a.lookup(&wide);
    if (n) lock_xadd(n, 1);
    b.increment(one); b.increment(one, 2); b.atomic_increment(one); b.atomic_increment(one, 2);
    leaf = c.lookup_or_try_init(&key, &zero);
    if (leaf) leaf->packets++;
    c.lookup_or_init(&key, &zero)->bytes += md->length;
    d.update(&one, &wide); d.insert(&one, &wide); d.delete(&one);
    e.insert(&key, &zero); f.update(&one, &one);
    g.increment(0); small = h.lookup(&one); if (small) *small += 1;
    leaf = i.lookup(&one); if (leaf) leaf->bytes++;
    j.increment(bpf_log2l(md->length)); k.increment(key);
    n = l.lookup(&route); if (n) ++*n;
    n = m.lookup(&route); if (n) *n += 1;
    n = n ? n : &wide;
    if (o.push(&zero, 0) == 0 && o.peek(&zero) == 0) o.pop(&zero);
    p.push(&one, BPF_EXIST); q.pop(&one);
    r.perf_submit(ctx, &zero, sizeof(zero)); r.perf_submit_skb(ctx, 64, &key, sizeof(key));
    s.ringbuf_output(&zero, sizeof(zero), 0);
    leaf = s.ringbuf_reserve(sizeof(*leaf));
    if (leaf) { leaf->packets = 1; leaf->bytes = get_time_epoch(ctx); s.ringbuf_submit(leaf, 0); }
    leaf = s.ringbuf_reserve(sizeof(*leaf));
    if (leaf) s.ringbuf_discard(leaf, BPF_RB_NO_WAKEUP);
    dp_log(INFO, "packet of %d bytes", md->length);
    if (load_byte(ctx, 12) == 8 && load_half(ctx, 12) == ETH_P_IP && load_word(ctx, 12) && load_dword(ctx, 12)) return DROP;
    return md->ingress ? PASS : REDIRECT(lo);
}
"#;

#[tokio::test]
async fn tables_have_their_methods_at_both_hooks() {
    for hook in [Hook::Xdp, Hook::TcIngress, Hook::TcEgress] {
        let object = compile(hook, TABLES)
            .await
            .unwrap_or_else(|rejection| panic!("{hook:?}: {rejection:?}"));
        assert_eq!(object.warnings, []);
    }
}

const DYNMON: &str = r#"
#define IPPROTO_UDP 17
struct eth_hdr { __be64 dst : 48; __be64 src : 48; __be16 proto; } __attribute__((packed));
struct iphdr { __u8 ihl:4, version:4; __u8 tos; __be16 tot_len; __be16 id; __be16 frag_off; __u8 ttl; __u8 protocol;
  __sum16 check; __be32 saddr; __be32 daddr; } __attribute__((packed));
BPF_ARRAY(NTP, uint64_t, 1);
static __always_inline
int handle_rx(struct CTXTYPE *ctx, struct pkt_metadata *md) {
    void *data = (void *) (long) ctx->data;
    void *data_end = (void *) (long) ctx->data_end;
    struct eth_hdr *ethernet = data;
    struct iphdr *ip = data + sizeof(*ethernet);
    if (data + sizeof(*ethernet) + sizeof(*ip) > data_end) return RX_OK;
    if (ethernet->proto != bpf_htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP) return RX_DROP;
    unsigned int key = 0;
    uint64_t *n = NTP.lookup(&key);
    if (!n) pcn_log(ctx, LOG_ERR, "no table"); else *n += 1;
    return RX_OK;
}
"#;

#[tokio::test]
async fn a_source_may_define_headers_itself() {
    for hook in [Hook::Xdp, Hook::TcEgress] {
        assert_eq!(compile(hook, DYNMON).await.unwrap().warnings, []);
    }
}

const CURSOR: &str = r#"#include <bcc/proto.h>
struct dns_t { uint16_t id; uint16_t flags; } BPF_PACKET_HEADER;
BPF_HASH(seen, u32, u64);
int count(struct CTXTYPE *skb) {
    u8 *cursor = 0;
    struct ethernet_t *ethernet = cursor_advance(cursor, sizeof(*ethernet));
    if (ethernet->type != ETH_P_IP) goto end;
    struct ip_t *ip = cursor_advance(cursor, sizeof(struct ip_t));
    void *_ = cursor_advance(cursor, ((ip->hlen << 2) - sizeof(*ip)));
    struct udp_t *udp = cursor_advance(cursor, sizeof(*udp));
    struct dns_t *dns = cursor_advance(cursor, sizeof(*dns));
    if (udp->dport == 53 && dns->flags >> 15 == 0) seen.increment(ip->src);
end:
    return 1;
}
"#;

#[tokio::test]
async fn headers_are_read_by_a_cursor() {
    for hook in [Hook::Xdp, Hook::TcIngress] {
        assert_eq!(compile(hook, CURSOR).await.unwrap().warnings, []);
    }
}

/// A file beside the source counts as part of the source: structs of the packet, tables, functions.
#[tokio::test]
async fn files_beside_a_source_may_define_what_it_needs() {
    let split = |source: &'static str, at: &str| {
        let (head, rest) = source.split_once(at).unwrap();
        (
            head.to_owned(),
            format!("#include \"lib/head.h\"\n{at}{rest}"),
        )
    };
    let handler = "static __always_inline";
    for (head, source) in [
        split(CURSOR, "int count("),
        split(DYNMON, handler),
        split(TABLES, handler),
    ] {
        let (files, defines) = (
            BTreeMap::from([("lib/head.h".to_owned(), head)]),
            BTreeMap::new(),
        );
        for hook in [Hook::Xdp, Hook::TcIngress] {
            let unit = Unit {
                files: &files,
                ..unit(hook, &source, &defines)
            };
            let compiled = Compiler::discover(false)
                .expect("the tests need clang")
                .compile(&unit)
                .await;
            assert_eq!(compiled.unwrap().warnings, []);
        }
    }
}

#[tokio::test]
async fn mistakes_have_the_lines_of_the_source() {
    let source = "BPF_HASH(a, u32);\nint f(struct xdp_md *ctx) {\n    a.increment(1);\n    return missing;\n}\n";
    let (line, message) = refused(Hook::Xdp, source).await;
    assert_eq!(
        (line, message.as_str()),
        (Some(4), "use of undeclared identifier 'missing'")
    );
    let (line, message) = refused(
        Hook::Xdp,
        "BPF_HASH(a, struct none);\nint f(struct xdp_md *ctx) { return 2; }",
    )
    .await;
    assert_eq!(line, Some(1), "{message}");
    let (line, message) = refused(
        Hook::Xdp,
        "\nint f(struct CTXTYPE *ctx) {\n  return ctx->tstamp; }",
    )
    .await;
    assert_eq!(line, Some(3));
    assert!(
        message.contains("'tstamp'") && message.contains("set hook to tc"),
        "{message}"
    );
    let leaf = "struct v { u64 a, b; };\nBPF_HASH(a, u32, struct v);\nint f(struct xdp_md *ctx) {\n  a.increment(1);\n  return 2; }";
    let (line, message) = refused(Hook::Xdp, leaf).await;
    assert!(
        line == Some(4)
            && message.starts_with("increment() is for tables whose values are integers"),
        "{message}"
    );
}

#[tokio::test]
async fn what_packets_have_not_is_named() {
    let with = |line: &str| format!("\n{line}\nint f(struct __sk_buff *skb) {{ return 0; }}\n");
    for (line, begin) in [
        (
            "BPF_STACK_TRACE(a, 16);",
            "BPF_STACK_TRACE holds calls of functions of the kernel",
        ),
        (
            "BPF_PERF_ARRAY(a, 16);",
            "BPF_PERF_ARRAY reads hardware counters",
        ),
        (
            "BPF_CGROUP_ARRAY(a, 16);",
            "BPF_CGROUP_ARRAY is filled with control groups",
        ),
        (
            "BPF_DEVMAP(a, 16);",
            "BPF_DEVMAP is filled by the program that loads it",
        ),
        (
            "BPF_ARRAY_OF_MAPS(a, \"b\", 4);",
            "BPF_ARRAY_OF_MAPS is filled by the program that loads it",
        ),
        (
            "BPF_TABLE(\"stacktrace\", int, u64, a, 1);",
            "there is no table of type stacktrace for packets",
        ),
        (
            "TRACEPOINT_PROBE(net, netif_rx) { return 0; }",
            "TRACEPOINT_PROBE traces functions of the kernel",
        ),
        (
            "int kprobe__tcp_close(struct pt_regs *ctx) { return 0; }",
            "kprobe__tcp_close traces a function of the kernel",
        ),
        (
            "int ops(struct bpf_sock_ops *ops) { return 0; }",
            "ops follows sockets; probes see packets",
        ),
    ] {
        let (at, message) = refused(Hook::TcIngress, &with(line)).await;
        assert!(message.starts_with(begin), "{line}: {message}");
        assert_eq!(at, Some(2), "{line}");
    }
    let method =
        "BPF_HASH(a, u32);\nint f(struct __sk_buff *skb) {\n  return a.get_stackid(skb, 0);\n}\n";
    let (line, message) = refused(Hook::TcIngress, method).await;
    assert!(
        line == Some(3) && message.contains("stack traces show how"),
        "{message}"
    );
    let printed = compile(
        Hook::Xdp,
        "int f(struct xdp_md *ctx) {\n  bpf_trace_printk(\"%d\", 1);\n  return 2; }",
    )
    .await;
    let warning = &printed.unwrap().warnings[0];
    assert!(
        warning.line == Some(2) && warning.message.starts_with("what it prints goes to"),
        "{warning:?}"
    );
}

#[tokio::test]
async fn a_table_of_the_other_direction_has_its_type() {
    let source = "BPF_TABLE(\"extern\", u32, u64, seen, 8);\nBPF_QUEUESTACK(\"extern\", q, u32, 8, 0);\n\
                  int f(struct CTXTYPE *ctx) { u32 one = 1; seen.increment(1); q.push(&one, 0); return 0; }";
    let other = "BPF_TABLE_SHARED(\"percpu_hash\", u32, u64, seen, 8);\nBPF_QUEUESTACK_SHARED(\"queue\", q, u32, 8, 0);\n";
    let (line, message) = refused(Hook::TcEgress, source).await;
    assert!(
        line == Some(1) && message.starts_with("there is no table of type extern"),
        "{message}"
    );
    let defines = BTreeMap::new();
    let unit = Unit {
        other: Some(other),
        ..unit(Hook::TcEgress, source, &defines)
    };
    let object = Compiler::discover(false)
        .unwrap()
        .compile(&unit)
        .await
        .unwrap();
    assert_eq!(object.shared, ["seen", "q"]);
    // One source for both directions, with alternatives.
    let both =
        format!("#if INGRESS\n{other}#else\n{source}\n#endif\n").replace("int f", "int handler");
    compile(Hook::TcEgress, &both).await.unwrap();
}

#[tokio::test]
async fn calls_of_a_table_of_programs_go_on() {
    let source =
        "BPF_PROG_ARRAY(a, 4);\nint f(struct CTXTYPE *ctx) {\n  a.call(ctx, 1);\n  return 2; }";
    let object = compile(Hook::Xdp, source).await.unwrap();
    let warning = &object.warnings[0];
    assert!(
        warning.line == Some(3)
            && warning
                .message
                .contains("no function stands in a slot of a"),
        "{warning:?}"
    );
}

#[tokio::test]
async fn the_function_for_packets_is_found_or_asked_for() {
    let two = "int a(struct CTXTYPE *c) { return 0; }\nint b(struct CTXTYPE *c) { return 0; }\n";
    let (line, message) = refused(Hook::Xdp, two).await;
    assert_eq!(line, Some(2));
    assert!(
        message.starts_with("several functions for packets: a, b; choose one by the field entry"),
        "{message}"
    );
    let by_direction = two.replace(" b(", " handle_egress(");
    compile(Hook::TcEgress, &by_direction).await.unwrap();
    let static_one = two.replace("int a", "static int a");
    compile(Hook::Xdp, &static_one).await.unwrap();
    let (line, message) =
        refused(Hook::TcIngress, "\nint a(struct xdp_md *c) { return 0; }\n").await;
    assert_eq!(
        (line, message.as_str()),
        (
            Some(2),
            "a takes a struct xdp_md, which the hook xdp has; set hook to xdp"
        )
    );
    let (line, message) =
        refused(Hook::TcEgress, "\nint a(struct xdp_md *c) { return 0; }\n").await;
    assert!(
        line == Some(2) && message.contains("XDP sees incoming packets only"),
        "{message}"
    );
    let (_, message) = refused(Hook::Xdp, "BPF_ARRAY(a, u64, 1);\n").await;
    assert!(
        message.starts_with("no entry point: the source needs a function for packets"),
        "{message}"
    );
}

#[tokio::test]
async fn calls_beside_a_source_for_libbpf_are_refused() {
    let calls = Calls::from([("next".to_owned(), BTreeMap::from([(1, "f".to_owned())]))]);
    let (source, defines) = (
        "SEC(\"xdp\") int f(struct xdp_md *ctx) { return 0; }",
        BTreeMap::new(),
    );
    let unit = Unit {
        calls: &calls,
        ..unit(Hook::Xdp, source, &defines)
    };
    let compiler = Compiler::discover(false).expect("the tests need clang");
    let rejection = compiler
        .compile(&unit)
        .await
        .expect_err("this source must not compile");
    assert_eq!(
        rejection.findings[0].field.as_deref(),
        Some("ingress.calls.next")
    );
}

const OFFSETS: &str = "#include <bcc/proto.h>
BPF_ARRAY(seen, u64, 8);
static inline void note(u32 key, u64 value) { seen.update(&key, &value); }
int f(struct __sk_buff *skb) {
    u8 *cursor = 0;
    struct ethernet_t *ethernet = cursor_advance(cursor, sizeof(*ethernet));
    struct ip_t *ip = cursor_advance(cursor, sizeof(*ip));
    struct udp_t *udp = cursor_advance(cursor,
        sizeof(*udp));
    note(0, (u64)ip + sizeof(*ip));
    note(1, (unsigned long)ethernet); note(2, (u64)udp);
    note(3, ip->ttl);
    return 1;
}
";

#[tokio::test]
async fn the_address_of_a_header_is_its_offset_where_it_is_a_number() {
    let object = compile(Hook::TcIngress, OFFSETS).await.unwrap();
    assert!(object.warnings.is_empty(), "{:?}", object.warnings);
    let both = OFFSETS.replace("note(3, ip->ttl);", "note(3, ip->ttl + (u64)ip);");
    let (line, message) = refused(Hook::TcIngress, &both).await;
    assert!(
        line == Some(12) && message.contains("ip is a copy of a header"),
        "{line:?} {message}"
    );
    let lines = OFFSETS.replace("    note(3,", "#line 7\n    note(3,");
    let (line, message) = refused(Hook::TcIngress, &lines).await;
    assert!(
        line == Some(11) && message.contains("without #line"),
        "{line:?} {message}"
    );
    // A macro may be anywhere.
    let macros = OFFSETS
        .replace("BPF_ARRAY", "#define TTL ip->ttl\nBPF_ARRAY")
        .replace("ip->ttl);", "TTL);");
    let (_, message) = refused(Hook::TcIngress, &macros).await;
    assert!(message.contains("outside_of_macros"), "{message}");
}
