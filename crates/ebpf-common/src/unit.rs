//! The unit of compilation: a source, and facts about its program.

use std::collections::BTreeMap;

use crate::hook::{Hook, Verdict};

/// The operator's choice of a dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The dialect that the source looks like.
    #[default]
    Auto,
    /// Maps and programs in sections, as libbpf loads them.
    Libbpf,
    /// Tables with methods, and functions without sections, as BCC compiles them.
    Bcc,
}

impl Dialect {
    /// The choices by their names in a configuration.
    pub const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("libbpf", Self::Libbpf), ("bcc", Self::Bcc)];
}

/// For each table of programs the function in each slot.
pub type Calls = BTreeMap<String, BTreeMap<u32, String>>;

/// A source to compile.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// The place of the source in the configuration, for findings: `ingress.source`.
    pub field: &'a str,
    pub source: &'a str,
    /// The files that the source may include, by their paths below its folder.
    pub files: &'a BTreeMap<String, String>,
    pub defines: &'a BTreeMap<String, String>,
    pub dialect: Dialect,
    /// The function for packets, for a source in the dialect of BCC that has several; `None` to choose.
    pub entry: Option<&'a str>,
    /// The functions that tables of programs lead to, for a source in the dialect of BCC: table, slot, function.
    pub calls: &'a Calls,
    /// The source of the other direction, whose tables a source in the dialect of BCC may take over.
    pub other: Option<&'a str>,
    pub hook: Hook,
    pub verdict: Verdict,
    /// True if XDP programs get packets of several buffers (Linux 5.18), and with them the helper functions that read such
    /// packets.
    pub frags: bool,
}

impl Unit<'_> {
    /// Returns the names of the macros that tell the source its hook and kernel; `twinprobe.h` reads them.
    pub fn target(&self) -> impl Iterator<Item = &'static str> {
        let names = match self.hook {
            Hook::Xdp => ["TWINPROBE_XDP", "TWINPROBE_INGRESS"],
            Hook::TcIngress => ["TWINPROBE_TC", "TWINPROBE_INGRESS"],
            Hook::TcEgress => ["TWINPROBE_TC", "TWINPROBE_EGRESS"],
        };
        names.into_iter().chain((!self.frags).then_some("TWINPROBE_SINGLE_BUFFER"))
    }
}
