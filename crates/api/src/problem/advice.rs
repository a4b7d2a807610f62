//! Advice about corrections, chosen by the words of the compiler's and the verifier's messages.
//! `{pointer}`, `{index}`, `{addend}`, `{end}` and `{pass}` stand for words of the source, `{name}`
//! for the name that the message quotes.
//!
//! The verifier's words are those of Linux 5.10 to 6.18: `inv` is the older word for `scalar`.

/// An advice, and the words that a message must contain, or must not contain after a `!`.
pub type Advice = (&'static [&'static str], &'static str);

/// Advice about messages of the verifier, the particular ones before the general ones.
pub const VERIFIER: &[Advice] = &[
    (
        &["math between pkt pointer and register with unbounded min value"],
        "bound the number before it is added to a pointer: `if ({addend} > 1500) return {pass};`, with {addend} unsigned",
    ),
    (
        &["invalid access to packet", "r=0)", "!(id=0,"],
        "bound the number that was added to the pointer, then compare with the end of the packet: `if (n > 1500) \
         return {pass};` before the addition, `if ((void *)({pointer} + 1) > {end}) return {pass};` after it",
    ),
    (
        &["invalid access to packet"],
        "compare with the end of the packet before the access: `if ((void *)({pointer} + 1) > {end}) return {pass};`",
    ),
    (
        &["invalid mem access", "_or_null'"],
        "a lookup may find nothing: `if (!{pointer}) return {pass};` before {pointer} is used",
    ),
    (
        &["invalid access to map value"],
        "keep the index inside the value: `if ({index} >= sizeof(array) / sizeof(array[0])) return {pass};` with \
         {index} unsigned, or `{index} & 63` where the array has 64 elements",
    ),
    (
        &["type=map_value expected=map_ptr"],
        "this is a variable, and the helper function takes a map: define the map itself, behind SEC(\".maps\"). Some loaders put a map of \
         another program here",
    ),
    (
        &["unbounded memory access"],
        "bound the index or length on both sides: make it unsigned, then `if ({index} >= 64) return {pass};`",
    ),
    (
        &["min value is negative"],
        "make the number unsigned (`__u32`), or refuse what is below zero: `if (n < 0) return {pass};`",
    ),
    (
        &["makes pkt pointer be out of bounds"],
        "bound the number before it is added to a pointer: `if ({addend} > 1500) return {pass};`",
    ),
    (
        &["cannot access ptr member"],
        "read kernel memory by a helper: `BPF_CORE_READ(...)`; a monitor has the packet only",
    ),
    (
        &["invalid mem access 'scalar'"],
        "this is a number now, not a pointer: keep a pointer as a pointer (`void *`), and don't read addresses \
         out of packets or maps",
    ),
    (
        &["invalid mem access 'inv'"],
        "this is a number now, not a pointer: keep a pointer as a pointer (`void *`), and don't read addresses \
         out of packets or maps",
    ),
    (
        &["infinite loop detected"],
        "give the loop a constant bound: `for (int i = 0; i < 64; i++)`, and leave it by `break`",
    ),
    (
        &["back-edge"],
        "give the loop a constant bound: `for (int i = 0; i < 64; i++)`, and leave it by `break`; before Linux 5.3 \
         also `#pragma unroll` above it",
    ),
    (
        &["BPF program is too large"],
        "the verifier walks through every turn and branch: make loops shorter, put a loop's body into a function of \
         its own (`static __noinline`), or use `bpf_loop` (Linux 5.17)",
    ),
    (
        &["too many states"],
        "the verifier walks through every branch: make loops shorter and the conditions in them fewer",
    ),
    (
        &["The sequence of", "jumps is too complex"],
        "the verifier walks through every branch: make loops shorter and the conditions in them fewer",
    ),
    (
        &["invalid indirect read from stack"],
        "all bytes have to be set, the gaps between members as well: `struct key key = {};`, or \
         `__builtin_memset(&key, 0, sizeof(key));` before the members",
    ),
    (
        &["invalid read from stack"],
        "all bytes have to be set, the gaps between members as well: `struct key key = {};`, or \
         `__builtin_memset(&key, 0, sizeof(key));` before the members",
    ),
    (
        &["R0 !read_ok"],
        "give back a value on every way through the program: `return {pass};` at its end",
    ),
    (
        &[" !read_ok"],
        "give the variable a value where it is declared: `__u32 n = 0;`",
    ),
    (
        &["Unreleased reference"],
        "give back what was reserved on every way: `bpf_ringbuf_submit(event, 0);`, or `bpf_ringbuf_discard(event, \
         0);` before an early `return`",
    ),
    (
        &["pointer", "prohibited"],
        "only numbers may be added to a pointer, or one packet pointer subtracted from another: take the address as it \
         is (`data + offset`), and count with numbers",
    ),
    (
        &["dereference of modified ctx ptr"],
        "use the context as it came: `ctx->data`, not through a pointer to one of its members",
    ),
    (
        &["invalid bpf_context access"],
        "this hook's context has no such field, or it is read in another size: XDP has data, data_end, data_meta, \
         ingress_ifindex and rx_queue_index as `__u32`; `struct __sk_buff` is for TC (`\"hook\": \"tc\"`)",
    ),
    (
        &["cannot call GPL"],
        "the helper is for programs under the GPL: `char LICENSE[] SEC(\"license\") = \"GPL\";`",
    ),
    (
        &["combined stack size"],
        "512 bytes of stack are all that a chain of calls has: put large values into a PERCPU_ARRAY with one entry",
    ),
    (
        &["invalid write to stack"],
        "512 bytes of stack are all that a program has: put large values into a PERCPU_ARRAY with one entry",
    ),
    (
        &["invalid stack"],
        "stay inside the variable on the stack: check the index, and that offset and size fit",
    ),
    (
        &["type=", "expected=map_ptr"],
        "the first argument is a map itself: `bpf_map_lookup_elem(&map, &key)`",
    ),
    (
        &["type=", "expected=fp"],
        "the argument is the address of a variable: `__u32 key = 0; bpf_map_lookup_elem(&map, &key)`",
    ),
    (
        &["misaligned"],
        "read byte by byte, or mark the structure `__attribute__((packed))`",
    ),
    (
        &["unknown func"],
        "this kernel does not have the helper for this hook; `twinprobe capabilities` shows what it has",
    ),
    (
        &["unreachable insn"],
        "remove unreachable code, such as a statement after `return`",
    ),
];

/// Advice about messages of the compiler.
pub const COMPILER: &[Advice] = &[
    (
        &["call to built-in function 'mem"],
        "give a constant length: `__builtin_memcpy(to, from, 16)`; a length that packets decide needs a loop with a \
         constant bound",
    ),
    (
        &["call to built-in function '__"],
        "eBPF has no floating point and no 128-bit division: count in integers, as nanoseconds or thousandths",
    ),
    (
        &["signed division is not supported"],
        "divide unsigned numbers: `(__u64)a / (__u64)b`",
    ),
    (
        &["Unsupport signed division"],
        "divide unsigned numbers: `(__u64)a / (__u64)b`",
    ),
    (
        &["BPF stack limit"],
        "512 bytes of stack are all that a program has: put large values into a PERCPU_ARRAY with one entry",
    ),
    (
        &["loop not unrolled"],
        "give the loop a constant bound, or remove `#pragma unroll`",
    ),
    (&["expected ';'"], "end the statement with `;`"),
    (
        &["no member named", "'struct bpf_"],
        "if a later kernel's <linux/bpf.h> has it, install those headers on the daemon's host (Debian: linux-libc-dev of backports), or \
         include \"vmlinux.h\" in place of them; else look at the members in the header",
    ),
    (
        &["no member named"],
        "look at the members in the header of the structure; those of <linux/...> are as on the wire: `struct iphdr` has \
         saddr and daddr, `struct udphdr` has source and dest",
    ),
    (
        &["too many arguments", "function call"],
        "eBPF functions take five arguments at most; hand over the address of a structure",
    ),
    (
        &["too few arguments"],
        "add the arguments that the function's declaration names",
    ),
    (
        &["redefinition of"],
        "the name is defined already, perhaps in a header: remove one definition or rename yours",
    ),
    (
        &["incompatible integer to pointer"],
        "the context has addresses as numbers: `void *data = (void *)(long)ctx->data;`",
    ),
    (
        &["comparison between pointer and integer"],
        "the context has addresses as numbers: `void *data_end = (void *)(long)ctx->data_end;`",
    ),
    (
        &["cast to 'void *' from smaller integer"],
        "cast by way of long: `(void *)(long)ctx->data`",
    ),
    (
        &["unknown attribute", "ignored"],
        "check the spelling: `__attribute__((btf_decl_tag(\"ipv4\")))`",
    ),
];

/// Headers, by the beginning of the names that they define.
pub const HEADERS: &[(&str, &str)] = &[
    ("bpf_hton", "bpf/bpf_endian.h"),
    ("bpf_ntoh", "bpf/bpf_endian.h"),
    ("bpf_cpu_to", "bpf/bpf_endian.h"),
    ("bpf_map_", "bpf/bpf_helpers.h"),
    ("bpf_ktime_", "bpf/bpf_helpers.h"),
    ("bpf_ringbuf_", "bpf/bpf_helpers.h"),
    ("bpf_get_", "bpf/bpf_helpers.h"),
    ("bpf_skb_", "bpf/bpf_helpers.h"),
    ("bpf_xdp_", "bpf/bpf_helpers.h"),
    ("SEC", "bpf/bpf_helpers.h"),
    ("__uint", "bpf/bpf_helpers.h"),
    ("__type", "bpf/bpf_helpers.h"),
    ("__always_inline", "bpf/bpf_helpers.h"),
    ("XDP_", "linux/bpf.h"),
    ("BPF_", "linux/bpf.h"),
    ("xdp_md", "linux/bpf.h"),
    ("__sk_buff", "linux/bpf.h"),
    ("TC_ACT_", "linux/pkt_cls.h"),
    ("ETH_", "linux/if_ether.h"),
    ("ethhdr", "linux/if_ether.h"),
    ("IPPROTO_", "linux/in.h"),
    ("in_addr", "linux/in.h"),
    ("iphdr", "linux/ip.h"),
    ("ipv6hdr", "linux/ipv6.h"),
    ("in6_addr", "linux/in6.h"),
    ("udphdr", "linux/udp.h"),
    ("tcphdr", "linux/tcp.h"),
    ("icmp6hdr", "linux/icmpv6.h"),
    ("ICMPV6_", "linux/icmpv6.h"),
    ("icmphdr", "linux/icmp.h"),
    ("ICMP_", "linux/icmp.h"),
    ("sctphdr", "linux/sctp.h"),
    ("arphdr", "linux/if_arp.h"),
    ("ARPOP_", "linux/if_arp.h"),
    ("TP_", "twinprobe.h"),
    ("tp_", "twinprobe.h"),
    ("bool", "stdbool.h"),
    ("true", "stdbool.h"),
    ("false", "stdbool.h"),
    ("__u", "linux/types.h"),
    ("__s", "linux/types.h"),
    ("__be", "linux/types.h"),
];

/// Names in sources for other environments, and the names that eBPF sources use instead.
pub const SPELLINGS: &[(&str, &str)] = &[
    ("htons", "bpf_htons"),
    ("ntohs", "bpf_ntohs"),
    ("htonl", "bpf_htonl"),
    ("ntohl", "bpf_ntohl"),
    ("u8", "__u8"),
    ("u16", "__u16"),
    ("u32", "__u32"),
    ("u64", "__u64"),
    ("s32", "__s32"),
    ("s64", "__s64"),
    ("uint8_t", "__u8"),
    ("uint16_t", "__u16"),
    ("uint32_t", "__u32"),
    ("uint64_t", "__u64"),
    ("int32_t", "__s32"),
    ("int64_t", "__s64"),
    ("size_t", "__u64"),
    ("memcpy", "__builtin_memcpy"),
    ("memset", "__builtin_memset"),
    ("memcmp", "__builtin_memcmp"),
    (
        "printf",
        "a map: a monitor prints nothing, and its metrics are maps",
    ),
    (
        "bpf_printk",
        "a map: a monitor prints nothing, and its metrics are maps",
    ),
];
