//! The unit of compilation: a source, and facts about its program.

use std::collections::BTreeMap;

use crate::hook::{Direction, Hook, ProgramKind, Verdict};

/// The operator's choice of the source's dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The dialect is guessed from the source.
    #[default]
    Auto,
    /// The style of libbpf: maps and programs are in sections.
    Libbpf,
    /// The style of BCC: tables have methods, and functions have no sections.
    Bcc,
}

impl Dialect {
    /// The choices by their names in a configuration.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("libbpf", Self::Libbpf),
        ("bcc", Self::Bcc),
    ];
}

/// The function in each slot of each table of programs.
pub type Calls = BTreeMap<String, BTreeMap<u32, String>>;

/// Returns the names that a text includes, in quotation marks or in brackets.
pub fn included(text: &str) -> impl Iterator<Item = &str> {
    inclusions(text).map(|(name, _)| name)
}

/// Returns the names that a text includes, and whether each of them is in brackets.
pub fn inclusions(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.lines().filter_map(|line| {
        let directive = line
            .trim_start()
            .strip_prefix('#')?
            .trim_start()
            .strip_prefix("include")?
            .trim_start();
        let (rest, end) = match directive.strip_prefix('"') {
            Some(rest) => (rest, '"'),
            None => (directive.strip_prefix('<')?, '>'),
        };
        rest.split_once(end).map(|(name, _)| (name, end == '>'))
    })
}

/// Returns a name without the leading steps (`..`) out of the folder of a source.
pub fn inside_of(name: &str) -> &str {
    name.trim_start_matches("../")
}

/// Tells whether a header has the types of a kernel, which the daemon makes itself: `vmlinux.h`, in
/// any folder, also with the name of a processor or a version, as in `vmlinux_x86.h` and
/// `vmlinux-518.h`.
pub fn is_vmlinux(name: &str) -> bool {
    const PROCESSORS: [&str; 14] = [
        "x86",
        "x64",
        "amd64",
        "i386",
        "arm",
        "arm64",
        "aarch64",
        "powerpc",
        "ppc64le",
        "riscv",
        "riscv64",
        "s390",
        "s390x",
        "loongarch",
    ];
    let file = name.rsplit('/').next().unwrap_or(name);
    let Some(rest) = file
        .strip_prefix("vmlinux")
        .and_then(|rest| rest.strip_suffix(".h"))
    else {
        return false;
    };
    let mut parts = rest.split(['_', '-']);
    let is_known =
        |part: &str| PROCESSORS.contains(&part) || part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next() == Some("") && parts.all(|part| !part.is_empty() && is_known(part))
}

/// A source that is to be compiled.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// The place of the source in the configuration, for findings: `ingress.source`.
    pub field: &'a str,
    pub source: &'a str,
    /// The files that the source may include, by their paths below the source's folder.
    pub files: &'a BTreeMap<String, String>,
    pub defines: &'a BTreeMap<String, String>,
    pub dialect: Dialect,
    /// The function for packets, for a source in the dialect of BCC with several functions; `None`
    /// to choose.
    pub entry: Option<&'a str>,
    /// The functions in tables of programs, for a source in the dialect of BCC: table, slot,
    /// function.
    pub calls: &'a Calls,
    /// The source of the other direction, whose tables a source in the dialect of BCC may take
    /// over.
    pub other: Option<&'a str>,
    pub hook: Hook,
    pub verdict: Verdict,
    /// True if XDP programs get packets of several buffers (Linux 5.18), and with them the helper
    /// functions that read such packets.
    pub frags: bool,
}

impl Unit<'_> {
    /// Returns the names of the macros that tell the source its hook and kernel; `twinprobe.h`
    /// reads them.
    pub fn target(&self) -> impl Iterator<Item = &'static str> {
        let kind = match self.hook.kind() {
            ProgramKind::Xdp => "TWINPROBE_XDP",
            ProgramKind::Tc => "TWINPROBE_TC",
        };
        let direction = match self.hook.into() {
            Direction::Ingress => "TWINPROBE_INGRESS",
            Direction::Egress => "TWINPROBE_EGRESS",
        };
        [kind, direction]
            .into_iter()
            .chain((!self.frags).then_some("TWINPROBE_SINGLE_BUFFER"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_with_the_types_of_a_kernel_are_known_by_their_names() {
        for name in [
            "vmlinux.h",
            "bpf/vmlinux.h",
            "../vmlinux_x86.h",
            "vmlinux-518.h",
            "vmlinux_arm64.h",
            "vmlinux_x86_64.h",
        ] {
            assert!(is_vmlinux(name), "{name}");
        }
        for name in [
            "vmlinux",
            "vmlinux.hpp",
            "vmlinux_local.h",
            "vmlinux_.h",
            "xvmlinux.h",
            "vmlinux.h/types.h",
            "vmlinux2.h",
        ] {
            assert!(!is_vmlinux(name), "{name}");
        }
    }

    #[test]
    fn names_of_headers_are_read_like_the_preprocessor_reads_them() {
        let text = "#include \"a.h\"\n  #\tinclude<b/c.h> // d\n// #include <e.h>\n#define include <f.h>\n#include G\n";
        assert_eq!(included(text).collect::<Vec<_>>(), ["a.h", "b/c.h"]);
    }
}
