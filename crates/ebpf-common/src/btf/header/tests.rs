use std::collections::HashSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::super::blob::Btf;
use super::padding::filling;

/// Compiles a source for BPF, and returns clang's messages if it fails.
fn compile(source: &str) -> Result<(), String> {
    let mut clang = Command::new("clang")
        .args([
            "-target",
            "bpf",
            "-fsyntax-only",
            "-Wall",
            "-Wno-unused-function",
            "-ferror-limit=20",
            "-x",
            "c",
            "-",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("clang is on the PATH");
    clang
        .stdin
        .take()
        .unwrap()
        .write_all(source.as_bytes())
        .unwrap();
    let output = clang.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(log)
    }
}

/// The kernel's own types are the largest available test: each struct has the size from the
/// kernel's BTF.
#[test]
fn the_running_kernels_types_are_a_header() {
    let btf = Btf::parse(&std::fs::read("/sys/kernel/btf/vmlinux").unwrap()).unwrap();
    let mut source = btf.header().unwrap();
    // An enum that has the same name comes first and gets the name.
    let enums = btf
        .type_ids()
        .filter(|id| btf.get(*id).unwrap().kind.describe() == "enum");
    let mut seen: HashSet<&str> = enums.map(|id| btf.type_name(id)).collect();
    for id in btf.type_ids() {
        let name = btf.type_name(id);
        let kind = match btf.get(id).unwrap().kind.describe() {
            kind @ ("struct" | "union") => kind,
            _ => continue,
        };
        // Types that share a name have different names in the header.
        let is_in_c =
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty();
        if seen.insert(name) && is_in_c {
            let size = btf.size_of(id).unwrap();
            source.push_str(&format!(
                "_Static_assert(sizeof({kind} {name}) == {size}, \"{name}\");\n"
            ));
        }
    }
    source.push_str(
        "_Static_assert(__builtin_offsetof(struct xdp_md, rx_queue_index) == 16, \"\");\n",
    );
    source.push_str(
        "_Static_assert(sizeof(struct iphdr) == 20 && sizeof(struct ipv6hdr) == 40, \"\");\n",
    );
    if let Err(log) = compile(&source) {
        panic!("{log}");
    }
}

#[test]
fn gaps_are_filled_in_place() {
    assert_eq!(filling(8, 64), [("char", 8), ("short", 16), ("int", 32)]);
    assert_eq!(
        filling(0, 200),
        [("long", 64), ("long", 64), ("long", 64), ("char", 8)]
    );
    assert_eq!(filling(3, 13), [("char", 5), ("char", 5)]);
    assert_eq!(filling(5, 6), [("char", 1)]);
}
