//! The findings of ebpf-common under their earlier path.

pub use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
