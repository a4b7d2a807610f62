//! What is compiled: a source, and what is known about the program that it becomes.

use std::collections::BTreeMap;

use twinprobe_ebpf_common::hook::{Hook, Verdict};

use crate::bcc::dialect::Dialect;

/// A source to compile.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// The place of the source in the configuration, for findings: `ingress.source`.
    pub field: &'a str,
    pub source: &'a str,
    pub defines: &'a BTreeMap<String, String>,
    pub dialect: Dialect,
    /// The function for packets, for a source in the dialect of BCC that has several; `None` to choose.
    pub entry: Option<&'a str>,
    pub hook: Hook,
    pub verdict: Verdict,
}
