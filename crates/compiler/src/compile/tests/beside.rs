//! Sources that include files beside them.

use super::*;

const SOURCE: &str = "#include \"sizes.h\"\n#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
    SEC(\"xdp\") int count(struct xdp_md *ctx) { return SIZE; }\n";

fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

async fn compile_with(
    compiler: &Compiler,
    source: &str,
    list: &[(&str, &str)],
) -> Result<CompiledObject, Rejection> {
    let (defines, files) = (BTreeMap::new(), files(list));
    compiler.compile(&Unit { files: &files, ..unit("ingress.source", source, &defines) }).await
}

#[tokio::test]
async fn a_source_includes_its_files_and_these_each_other() {
    let compiler = compiler();
    let list = [
        ("sizes.h", "#pragma once\n#include \"lib/a.h\"\n#include \"lib/../lib/a.h\"\n"),
        (
            "lib/a.h",
            "#pragma once\n#include \"b.h\"\n#include \"../sizes.h\"\n#include \"sizes.h\"\n#include <linux/types.h>\n",
        ),
        ("lib/b.h", "enum { SIZE = 2 };\n"),
        // The name of a header of the host. Quotation marks mean the file beside the source, brackets mean the host's
        // header.
        ("linux/bpf.h", "#error the own header of this name"),
    ];
    let object = compile_with(&compiler, SOURCE, &list).await.unwrap();
    assert!(object.elf.starts_with(b"\x7fELF") && object.warnings.is_empty(), "{:?}", object.warnings);
    let quoted = "#include \"linux/bpf.h\"\n";
    assert!(compile_with(&compiler, quoted, &list).await.is_err());
}

/// The key of a known object includes the texts of the files.
#[tokio::test]
async fn another_text_is_another_object() {
    let compiler = compiler();
    let of = async |text: &str| compile_with(&compiler, SOURCE, &[("sizes.h", text)]).await.unwrap();
    let first = of("#define SIZE 1\n").await;
    let (again, other) = (of("#define SIZE 1\n").await, of("#define SIZE 2\n").await);
    assert!(!first.reused && again.reused && !other.reused);
    assert!(first.elf == again.elf && first.elf != other.elf);
    // No other process sees the file, which is in no directory.
    let without = compile_with(&compiler, SOURCE, &[]).await.unwrap_err();
    assert!(without.findings[0].message.contains("'sizes.h' file not found"), "{without:?}");
}

#[tokio::test]
async fn findings_name_the_file_and_its_line() {
    let list = [
        ("lib/sizes.h", "#define SIZE 0\nint x\n= y;\n#warning small\n"),
        ("sizes.h", "#include \"lib/sizes.h\"\n"),
    ];
    let rejection = compile_with(&compiler(), SOURCE, &list).await.unwrap_err();
    let [finding] = &rejection.findings[..] else { panic!("{rejection:?}") };
    assert_eq!(finding.field.as_deref(), Some("ingress.files.lib/sizes.h"));
    assert_eq!((finding.line, finding.column), (Some(3), Some(3)));
    assert!(finding.message.contains("use of undeclared identifier 'y'"), "{finding:?}");
    let log = rejection.log.unwrap();
    assert!(log.contains("lib/sizes.h:3:3: error") && !log.contains("/twinprobe/source"), "{log}");
    let list = [("sizes.h", "#define SIZE 0\n\n#warning small\n")];
    let object = compile_with(&compiler(), SOURCE, &list).await.unwrap();
    let warning = &object.warnings[0];
    assert_eq!((warning.field.as_deref(), warning.line), (Some("ingress.files.sizes.h"), Some(3)));
}

/// Programs of one project share headers in a folder beside their folders. Here its place is below the folder
/// of the source.
#[tokio::test]
async fn names_that_lead_out_of_the_folder_mean_files_in_it() {
    let compiler = compiler();
    let source = SOURCE.replace("sizes.h", "../common/sizes.h");
    let good = [
        ("common/sizes.h", "#include \"../lib/deep/a.h\"\n#include \"../../other/b.h\"\n"),
        ("lib/deep/a.h", "#pragma once\n#include \"../../../common/c.h\"\n"),
        ("other/b.h", "#include \"../lib/deep/a.h\"\n"),
        ("common/c.h", "enum { SIZE = 2 };\n"),
    ];
    let object = compile_with(&compiler, &source, &good).await.unwrap();
    assert!(object.warnings.is_empty(), "{:?}", object.warnings);
    let bad = [("common/sizes.h", "#define SIZE 0\n\nint xxx[y];\n")];
    let rejection = compile_with(&compiler, &source, &bad).await.unwrap_err();
    let finding = &rejection.findings[0];
    assert_eq!((finding.field.as_deref(), finding.line), (Some("ingress.files.common/sizes.h"), Some(3)));
    let log = rejection.log.unwrap();
    assert!(log.contains("common/sizes.h:3:9: error") && !log.contains('='), "{log}");
}

/// If the first declaration of a header comes from a macro, clang 14 loses the text of the header, and then refuses
/// inline assembly.
#[tokio::test]
async fn headers_that_begin_with_a_macro_may_be_beside_inline_assembly() {
    let list = [
        ("first.h", "#define DECLARE(name) extern int name;\nDECLARE(first)\n"),
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
    for include in
        ["../../etc/hostname", "/etc/hostname", "../include/../../etc/hostname", "/proc/self/environ"]
    {
        let list = [("sizes.h", &*format!("#define SIZE 0\n#include \"{include}\"\n"))];
        let rejection = compile_with(&compiler(), SOURCE, &list).await.unwrap_err();
        assert!(rejection.findings[0].message.contains("file not found"), "{include}: {rejection:?}");
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
    assert!(rejection.findings[0].message.contains("redefinition of 'bpf_tunnel_key'"), "{rejection:?}");
    let twice = refused("struct a { int b; };\nstruct a { int b; };\n").await;
    assert_eq!(twice.findings[0].line, Some(2), "{twice:?}");
}
