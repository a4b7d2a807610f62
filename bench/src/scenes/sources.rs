//! The programs of `bench/bpf` that are for XDP and for TC.

/// A program with the header before it that has the names of the hook. Both are one text, because
/// the daemon takes a single text.
macro_rules! for_both_hooks {
    ($file:literal) => {
        concat!(
            include_str!("../../bpf/hook.h"),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/", $file))
        )
    };
}

pub const ACTIONS: &str = for_both_hooks!("actions.bpf.c");
pub const EVENTS: &str = for_both_hooks!("events.bpf.c");
pub const HOOKS: &str = for_both_hooks!("hooks.bpf.c");
pub const RETURNS: &str = for_both_hooks!("returns.bpf.c");
pub const STAGES: &str = for_both_hooks!("stages.bpf.c");
