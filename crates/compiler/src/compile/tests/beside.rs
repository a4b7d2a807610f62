//! Sources that include files beside them.

use super::*;

const SOURCE: &str = "#include \"sizes.h\"\n#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
    SEC(\"xdp\") int count(struct xdp_md *ctx) { return SIZE; }\n";

fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

async fn compile_with(
    compiler: &Compiler,
    source: &str,
    list: &[(&str, &str)],
) -> Result<CompiledObject, Rejection> {
    let (defines, files) = (BTreeMap::new(), files(list));
    compiler
        .compile(&Unit {
            files: &files,
            ..unit("ingress.source", source, &defines)
        })
        .await
}

#[tokio::test]
async fn a_source_includes_its_files_and_these_each_other() {
    let compiler = compiler();
    let list = [
        (
            "sizes.h",
            "#pragma once\n#include \"lib/a.h\"\n#include \"lib/../lib/a.h\"\n",
        ),
        (
            "lib/a.h",
            "#pragma once\n#include \"b.h\"\n#include \"../sizes.h\"\n#include \"sizes.h\"\n#include <linux/types.h>\n",
        ),
        ("lib/b.h", "enum { SIZE = 2 };\n"),
        // The name of a header of the host. Quotation marks mean the file beside the source,
        // brackets mean the host's header.
        ("linux/bpf.h", "#error the own header of this name"),
    ];
    let object = compile_with(&compiler, SOURCE, &list).await.unwrap();
    assert!(
        object.elf.starts_with(b"\x7fELF") && object.warnings.is_empty(),
        "{:?}",
        object.warnings
    );
    let quoted = "#include \"linux/bpf.h\"\n";
    assert!(compile_with(&compiler, quoted, &list).await.is_err());
}

/// The key of a known object includes the texts of the files.
#[tokio::test]
async fn another_text_is_another_object() {
    let compiler = compiler();
    let of = async |text: &str| {
        compile_with(&compiler, SOURCE, &[("sizes.h", text)])
            .await
            .unwrap()
    };
    let first = of("#define SIZE 1\n").await;
    let (again, other) = (of("#define SIZE 1\n").await, of("#define SIZE 2\n").await);
    assert!(!first.reused && again.reused && !other.reused);
    assert!(first.elf == again.elf && first.elf != other.elf);
    // No other process sees the file, which is in no directory.
    let without = compile_with(&compiler, SOURCE, &[]).await.unwrap_err();
    assert!(
        without.findings[0]
            .message
            .contains("'sizes.h' file not found"),
        "{without:?}"
    );
}

#[tokio::test]
async fn findings_name_the_file_and_its_line() {
    let list = [
        (
            "lib/sizes.h",
            "#define SIZE 0\nint x\n= y;\n#warning small\n",
        ),
        ("sizes.h", "#include \"lib/sizes.h\"\n"),
    ];
    let rejection = compile_with(&compiler(), SOURCE, &list).await.unwrap_err();
    let [finding] = &rejection.findings[..] else {
        panic!("{rejection:?}")
    };
    assert_eq!(finding.field.as_deref(), Some("ingress.files.lib/sizes.h"));
    assert_eq!((finding.line, finding.column), (Some(3), Some(3)));
    assert!(
        finding.message.contains("use of undeclared identifier 'y'"),
        "{finding:?}"
    );
    let log = rejection.log.unwrap();
    assert!(
        log.contains("lib/sizes.h:3:3: error") && !log.contains("/twinprobe/source"),
        "{log}"
    );
    let list = [("sizes.h", "#define SIZE 0\n\n#warning small\n")];
    let object = compile_with(&compiler(), SOURCE, &list).await.unwrap();
    let warning = &object.warnings[0];
    assert_eq!(
        (warning.field.as_deref(), warning.line),
        (Some("ingress.files.sizes.h"), Some(3))
    );
}

/// Programs of one project share headers in a folder beside their folders. Here its place is below
/// the folder of the source.
#[tokio::test]
async fn names_that_lead_out_of_the_folder_mean_files_in_it() {
    let compiler = compiler();
    let source = SOURCE.replace("sizes.h", "../common/sizes.h");
    let good = [
        (
            "common/sizes.h",
            "#include \"../lib/deep/a.h\"\n#include \"../../other/b.h\"\n",
        ),
        (
            "lib/deep/a.h",
            "#pragma once\n#include \"../../../common/c.h\"\n",
        ),
        ("other/b.h", "#include \"../lib/deep/a.h\"\n"),
        ("common/c.h", "enum { SIZE = 2 };\n"),
    ];
    let object = compile_with(&compiler, &source, &good).await.unwrap();
    assert!(object.warnings.is_empty(), "{:?}", object.warnings);
    let bad = [("common/sizes.h", "#define SIZE 0\n\nint xxx[y];\n")];
    let rejection = compile_with(&compiler, &source, &bad).await.unwrap_err();
    let finding = &rejection.findings[0];
    assert_eq!(
        (finding.field.as_deref(), finding.line),
        (Some("ingress.files.common/sizes.h"), Some(3))
    );
    let log = rejection.log.unwrap();
    assert!(
        log.contains("common/sizes.h:3:9: error") && !log.contains('='),
        "{log}"
    );
}

/// If the first declaration of a header comes from a macro, clang 14 loses the text of the header,
/// and then refuses inline assembly.
#[tokio::test]
async fn headers_that_begin_with_a_macro_may_be_beside_inline_assembly() {
    let list = [
        (
            "first.h",
            "#define DECLARE(name) extern int name;\nDECLARE(first)\n",
        ),
        (
            "sizes.h",
            "#include \"first.h\"\nstatic inline int size(void) { int n; asm volatile(\"%0 = 2\" : \"=r\"(n)); return n; }\n\
             #define SIZE size()\n",
        ),
    ];
    let object = compile_with(&compiler(), SOURCE, &list).await.unwrap();
    assert!(object.elf.starts_with(b"\x7fELF"));
}

/// Files beside a source can't lead to files of the host.
#[tokio::test]
async fn files_lead_nowhere_else() {
    for include in [
        "../../etc/hostname",
        "/etc/hostname",
        "../include/../../etc/hostname",
        "/proc/self/environ",
    ] {
        let list = [(
            "sizes.h",
            &*format!("#define SIZE 0\n#include \"{include}\"\n"),
        )];
        let rejection = compile_with(&compiler(), SOURCE, &list).await.unwrap_err();
        assert!(
            rejection.findings[0].message.contains("file not found"),
            "{include}: {rejection:?}"
        );
    }
}

/// The host's headers may be later than a source, and have what the source defines itself.
#[tokio::test]
async fn names_of_later_headers_may_be_the_source_s_own() {
    let text = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        struct bpf_tunnel_key { int own; };\nenum bpf_check_mtu_flags { BPF_MTU_CHK_SEGS = 7 };\n\
        static long (*bpf_xdp_load_bytes)(struct xdp_md *, __u32, void *, __u32) = (void *)189;\n\
        SEC(\"xdp\") int count(struct xdp_md *ctx)\n{\n\tstruct bpf_tunnel_key key = { BPF_MTU_CHK_SEGS };\n\
        \treturn bpf_xdp_load_bytes(ctx, 0, &key, sizeof(key)) ? XDP_PASS : key.own;\n}\n";
    let object = compile(text).await.unwrap();
    assert!(object.warnings.is_empty(), "{:?}", object.warnings);
    // Other mistakes have the messages of the first run.
    let rejection = refused(&format!("{text}int x\n= y;\n")).await;
    assert!(
        rejection.findings[0]
            .message
            .contains("redefinition of 'bpf_tunnel_key'"),
        "{rejection:?}"
    );
    let twice = refused("struct a { int b; };\nstruct a { int b; };\n").await;
    assert_eq!(twice.findings[0].line, Some(2), "{twice:?}");
}

/// A project's own file of a few types comes before the types of the kernel, also in angle
/// brackets.
#[tokio::test]
async fn a_project_s_own_types_come_first() {
    let text = "#include <vmlinux.h>\nstruct own { __u32 first; };\n\
        __attribute__((section(\"xdp\"), used)) int count(struct xdp_md *ctx)\n{\n\
        \tstruct own own = { ctx->data };\n\tstruct few few = { own.first };\n\treturn few.member;\n}\n";
    let few = "typedef unsigned int __u32;\nstruct few { __u32 member; };\nstruct xdp_md { __u32 data; };\n";
    let object = compile_with(&compiler(), text, &[("vmlinux.h", few)])
        .await
        .unwrap();
    assert!(object.warnings.is_empty(), "{:?}", object.warnings);
    // A mistake in the file names it.
    let rejection = compile_with(
        &compiler(),
        text,
        &[("vmlinux.h", &few.replace("__u32 member", "__u33 member"))],
    )
    .await
    .unwrap_err();
    let finding = &rejection.findings[0];
    assert_eq!(
        (finding.field.as_deref(), finding.line),
        (Some("ingress.files.vmlinux.h"), Some(2))
    );
}

/// The types of the kernel have names that a source has for its own, under each name of their file.
#[tokio::test]
async fn names_of_the_kernel_s_types_may_be_the_source_s_own() {
    for file in ["vmlinux.h", "types/vmlinux.h", "types/vmlinux_x86.h"] {
        let text = format!(
            "#include \"{file}\"\n#include <bpf/bpf_helpers.h>\nenum own {{ PIDTYPE_PID = 7 }};\n\
             SEC(\"xdp\") int count(struct xdp_md *ctx)\n{{\n\treturn PIDTYPE_PID;\n}}\n"
        );
        let object = compile(&text).await.unwrap();
        assert!(object.warnings.is_empty(), "{file}: {:?}", object.warnings);
    }
}

/// A source with the kernel's API does not ask for the types if it only speaks of them.
#[tokio::test]
async fn names_inside_the_kernel_are_there_beside_a_word_about_types() {
    let text = "/* without vmlinux.h */\n#include <uapi/linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        SEC(\"xdp\") int count(struct xdp_md *ctx)\n{\n\tu32 length = ctx->data_end - ctx->data;\n\
        \treturn length ? XDP_PASS : XDP_DROP;\n}\n";
    let object = compile(text).await.unwrap();
    assert!(object.warnings.is_empty(), "{:?}", object.warnings);
}

/// C has declarations behind labels since 2023; older compilers get an empty statement before them,
/// also in headers.
#[tokio::test]
async fn declarations_may_follow_labels() {
    let text = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include \"more.h\"\n\
        SEC(\"xdp\") int count(struct xdp_md *ctx)\n{\n\tswitch (ctx->rx_queue_index) {\n\tcase 0:\n\
        \t\t__u32 first = ctx->ingress_ifindex;\n\t\treturn first;\n\tcase 1: struct xdp_md *other = ctx;\n\
        \t\treturn more(other);\n\tdefault:\n\t\tint last = 2;\n\t\treturn last;\n\t}\n}\n";
    let more = "static int more(struct xdp_md *ctx)\n{\n\tif (ctx->data)\n\t\tgoto end;\n\treturn 1;\nend:\n\
        \tunsigned int length = ctx->data_end - ctx->data;\n\treturn length;\n}\n";
    let object = compile_with(&compiler(), text, &[("more.h", more)])
        .await
        .unwrap();
    assert!(object.elf.starts_with(b"\x7fELF"));
    // A declaration that is not behind a label stays a mistake, with its line.
    let wrong = text.replace("return first;", "if (first) int x = 1;");
    let rejection = compile_with(&compiler(), &wrong, &[("more.h", more)])
        .await
        .unwrap_err();
    assert!(
        rejection
            .findings
            .iter()
            .any(|finding| finding.line == Some(9)),
        "{rejection:?}"
    );
}

/// The kernel's own header of IPv6, against which sources for BCC compile, has the headers of TCP
/// and UDP.
#[tokio::test]
async fn the_header_of_ipv6_brings_those_of_tcp_and_udp_for_bcc() {
    let (defines, text) = (
        BTreeMap::new(),
        "#include <uapi/linux/bpf.h>\n#include <linux/ipv6.h>\nint count(struct xdp_md *ctx)\n{\n\
            \treturn ctx->data_end - ctx->data > sizeof(struct udphdr) + sizeof(struct tcphdr) ? XDP_PASS : XDP_DROP;\n}\n",
    );
    let unit = Unit {
        dialect: Dialect::Bcc,
        ..unit("ingress.source", text, &defines)
    };
    let object = compiler().compile(&unit).await.unwrap();
    assert!(object.elf.starts_with(b"\x7fELF"));
}
