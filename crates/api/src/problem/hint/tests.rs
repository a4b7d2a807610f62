//! Tests with messages of clang 14 to 19, and of the verifiers of Linux 5.10 and 6.18.

use super::*;

const SOURCE: &str = "#include <linux/bpf.h>
    void *end = (void *)(long)ctx->data_end;
    if (udp->dest == bpf_htons(53))
    *seen += 1;
    v->a[i]++;
    __u8 *p = data + off;
    return *p;
";

fn advice(stage: Stage, line: u32, column: u32, message: &str) -> String {
    let finding = Finding::new(stage, "ingress.source", message).at(line, Some(column));
    hint(&finding, SOURCE).unwrap_or_default()
}

#[test]
fn messages_of_the_verifier_get_advice_in_the_words_of_the_source() {
    let refused = "the kernel's verifier refuses the program: ";
    for (line, column, message, expected) in [
        (
            3,
            14,
            "invalid access to packet, off=36 size=2, R1(id=0,off=36,r=34): R1 offset is outside of the packet",
            "`if ((void *)(udp + 1) > end) return XDP_PASS;`",
        ),
        (
            7,
            12,
            "invalid access to packet, off=0 size=1, R1(id=1,off=0,r=0): R1 offset is outside of the packet",
            "`if (n > 1500) return XDP_PASS;`",
        ),
        (
            4,
            11,
            "R0 invalid mem access 'map_value_or_null'",
            "`if (!seen) return XDP_PASS;`",
        ),
        (
            4,
            11,
            "R0 invalid mem access 'scalar'",
            "a number now, not a pointer",
        ),
        (
            4,
            11,
            "R0 invalid mem access 'inv'",
            "a number now, not a pointer",
        ),
        (
            5,
            12,
            "invalid access to map value, value_size=32 off=2040 size=8: R0 max value is outside of the allowed \
            memory range",
            "`if (i >= sizeof(array) / sizeof(array[0])) return XDP_PASS;`",
        ),
        (
            5,
            12,
            "R0 unbounded memory access, make sure to bounds check any such access",
            "`if (i >= 64)",
        ),
        (
            5,
            12,
            "R1 min value is negative, either use unsigned index or do a if (index >=0) check.",
            "`__u32`",
        ),
        (
            6,
            20,
            "math between pkt pointer and register with unbounded min value is not allowed",
            "`if (off > 1500)",
        ),
        (
            4,
            1,
            "infinite loop detected at insn 2",
            "`for (int i = 0; i < 64; i++)`",
        ),
        (
            4,
            1,
            "back-edge from insn 12 to 3",
            "`for (int i = 0; i < 64; i++)`",
        ),
        (
            4,
            1,
            "BPF program is too large. Processed 1000001 insn",
            "`bpf_loop`",
        ),
        (
            4,
            1,
            "invalid indirect read from stack off -24+1 size 16",
            "`struct key key = {};`",
        ),
        (
            4,
            1,
            "invalid read from stack R2 off -24+1 size 16",
            "`struct key key = {};`",
        ),
        (4, 1, "R7 !read_ok", "`__u32 n = 0;`"),
        (4, 1, "R0 !read_ok", "`return XDP_PASS;`"),
        (
            4,
            1,
            "Unreleased reference id=2 alloc_insn=4",
            "`bpf_ringbuf_discard(event, 0);`",
        ),
        (4, 1, "R1 pointer *= pointer prohibited", "`data + offset`"),
        (
            4,
            1,
            "R2 bitwise operator &= on pointer prohibited",
            "`data + offset`",
        ),
        (
            4,
            1,
            "R2 type=ctx expected=fp, pkt, pkt_meta, map_key",
            "address of a variable",
        ),
        (
            4,
            1,
            "R1 type=fp expected=map_ptr",
            "`bpf_map_lookup_elem(&map, &key)`",
        ),
        (
            4,
            1,
            "invalid bpf_context access off=8 size=4",
            "\"hook\": \"tc\"",
        ),
        (
            4,
            1,
            "dereference of modified ctx ptr R1 off=8 disallowed",
            "`ctx->data`",
        ),
        (
            4,
            1,
            "cannot call GPL-restricted function from non-GPL compatible program",
            "\"GPL\"",
        ),
        (
            4,
            1,
            "combined stack size of 2 calls is 544. Too large",
            "PERCPU_ARRAY",
        ),
        (
            4,
            1,
            "unknown func bpf_loop#181",
            "does not have the helper",
        ),
    ] {
        let found = advice(Stage::Load, line, column, &format!("{refused}{message}"));
        assert!(
            found.contains(expected),
            "{message}: {found:?} lacks {expected:?}"
        );
        assert!(!found.contains('{') || found.contains("= {}"), "{found}");
    }
}

#[test]
fn messages_of_the_compiler_get_advice() {
    for (message, expected) in [
        (
            "use of undeclared identifier 'ETH_P_IP'",
            "`#include <linux/if_ether.h>`",
        ),
        (
            "use of undeclared identifier 'IPPROTO_UDP'",
            "`#include <linux/in.h>`",
        ),
        ("use of undeclared identifier 'u32'", "write `__u32`"),
        ("unknown type name 'uint64_t'", "write `__u64`"),
        (
            "call to undeclared function 'bpf_htons'; ISO C99 and later do not support implicit function declarations",
            "`#include <bpf/bpf_endian.h>`",
        ),
        (
            "implicit declaration of function 'bpf_ntohs' is invalid in C99",
            "`#include <bpf/bpf_endian.h>`",
        ),
        (
            "incomplete definition of type 'struct ipv6hdr'",
            "`#include <linux/ipv6.h>`",
        ),
        (
            "arithmetic on a pointer to an incomplete type 'struct ipv6hdr'",
            "`#include <linux/ipv6.h>`",
        ),
        ("no member named 'src' in 'struct iphdr'", "saddr and daddr"),
        (
            "no member named 'mark' in 'struct bpf_fib_lookup'",
            "linux-libc-dev of backports",
        ),
        ("expected ';' at end of declaration", "`;`"),
        ("'linux/ipv66.h' file not found", "check the spelling"),
        ("'net/sock.h' file not found", "vmlinux.h"),
        ("'bpf/bpf_helpers.h' file not found", "libbpf-dev"),
        (
            "'../common/sizes.h' file not found",
            "copy it to `common/sizes.h` below the source's folder",
        ),
        (
            "'a/../../sizes.h' file not found",
            "its path below the source's folder",
        ),
        (
            "'lib/sizes.h' file not found",
            "copy it beside the source as `lib/sizes.h`",
        ),
        (
            "A call to built-in function 'memcpy' is not supported.",
            "constant length",
        ),
        (
            "A call to built-in function '__muldf3' is not supported.",
            "no floating point",
        ),
        (
            "signed division is not supported; make the operands unsigned",
            "`(__u64)a / (__u64)b`",
        ),
        (
            "incompatible integer to pointer conversion initializing 'struct ethhdr *' with an expression of type '__u32'",
            "`void *data = (void *)(long)ctx->data;`",
        ),
        (
            "ordered comparison between pointer and integer ('void *' and '__u32')",
            "data_end",
        ),
        (
            "loop not unrolled: the optimizer was unable to perform the requested transformation",
            "constant bound",
        ),
    ] {
        let found = advice(Stage::Compile, 4, 1, message);
        assert!(
            found.contains(expected),
            "{message}: {found:?} lacks {expected:?}"
        );
    }
    let misspelt = Finding::new(
        Stage::Compile,
        "ingress.source",
        "use of undeclared identifier 'XDP_PAS'",
    )
    .at(3, None);
    assert_eq!(
        hint(&misspelt, SOURCE).unwrap(),
        "check the spelling: <linux/bpf.h> has no XDP_PAS"
    );
    let newer = "use of undeclared identifier 'BPF_F_TIMER_CPU_PIN'";
    let newer = Finding::new(Stage::Compile, "ingress.source", newer).at(3, None);
    assert!(
        hint(&newer, SOURCE)
            .unwrap()
            .contains("give it in `defines`")
    );
    assert!(
        hint(&newer, "int a;\nint b;\nint c;\n")
            .unwrap()
            .contains("give BPF_F_TIMER_CPU_PIN in `defines`")
    );
    let own = Finding::new(
        Stage::Compile,
        "ingress.source",
        "Target architecture not supported",
    )
    .at(2, None);
    assert!(
        hint(&own, "#else\n# error Target architecture not supported\n")
            .unwrap()
            .contains("in `defines`")
    );
    assert!(
        advice(Stage::Compile, 1, 1, "use of undeclared identifier 'nomap'")
            .contains("nomap is not known here")
    );
    let kfunc = "the source uses htons without defining it; neither other files nor kernel functions are linked in";
    assert_eq!(advice(Stage::Admission, 4, 1, kfunc), "write `bpf_htons`");
    assert_eq!(
        advice(Stage::Admission, 4, 1, &kfunc.replace("htons", "htons, x")),
        "write `bpf_htons`"
    );
    let patched = kfunc.replace("htons", "LIMIT");
    assert!(
        advice(Stage::Admission, 4, 1, &patched).contains("declare a `const volatile` variable")
    );
    let lookup = Finding::new(
        Stage::Admission,
        "ingress.source",
        kfunc.replace("htons", "bpf_ct_lookup"),
    );
    let declared = "extern int bpf_ct_lookup(struct xdp_md *ctx,\n\tint flags) __ksym;\nint f(void) { return 0; }\n";
    assert!(
        hint(&lookup, declared)
            .unwrap()
            .contains("`if (bpf_ksym_exists(bpf_ct_lookup))`")
    );
    assert!(
        !hint(&lookup, &declared.replace(" __ksym", ""))
            .unwrap()
            .contains("kfunc")
    );
}

#[test]
fn other_messages_get_none() {
    assert_eq!(
        advice(
            Stage::Compile,
            1,
            1,
            "use of undeclared identifier 'nomap'; did you mean 'map'?"
        ),
        ""
    );
    assert_eq!(advice(Stage::Load, 99, 99, "something new"), "");
    assert_eq!(advice(Stage::Config, 1, 1, "expected ';'"), "");
}
