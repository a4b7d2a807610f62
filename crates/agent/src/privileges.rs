//! The daemon's privileges. Before it starts threads, the daemon drops every privilege that it does
//! not need.

use anyhow::Context as _;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setrlimit, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The capabilities that the daemon keeps if it has them, with their names and their purpose.
const KEPT: [(CapabilitySet, &str, &str); 8] = [
    (CapabilitySet::BPF, "BPF", "loads programs and maps"),
    (
        CapabilitySet::PERFMON,
        "PERFMON",
        "loads programs that read kernel memory, and reads perf rings",
    ),
    (
        CapabilitySet::NET_ADMIN,
        "NET_ADMIN",
        "attaches programs to XDP and TC",
    ),
    (
        CapabilitySet::SETUID,
        "SETUID",
        "runs the compiler as another user",
    ),
    (
        CapabilitySet::SETGID,
        "SETGID",
        "runs the compiler in another group",
    ),
    (
        CapabilitySet::KILL,
        "KILL",
        "ends compilations, which run as another user",
    ),
    (
        CapabilitySet::SYS_ADMIN,
        "SYS_ADMIN",
        "enters namespaces, makes them for replays, and mounts bpffs",
    ),
    (
        CapabilitySet::SYS_PTRACE,
        "SYS_PTRACE",
        "finds namespaces at /proc/PID/ns/net",
    ),
];

/// The privileges that the daemon needs only with some options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// True if the daemon listens at a port below 1024.
    pub low_ports: bool,
    /// True if the daemon gives its socket to a group.
    pub group: bool,
    /// True if the daemon must know which program's code is at an address in the kernel. The kernel
    /// shows its addresses only with this privilege.
    pub addresses: bool,
    /// True if the daemon starts `xdp-loader`.
    pub loader: bool,
}

/// The capabilities that the daemon passes on to `xdp-loader`.
const PASSED_ON: [CapabilitySet; 4] = [
    CapabilitySet::BPF,
    CapabilitySet::PERFMON,
    CapabilitySet::NET_ADMIN,
    CapabilitySet::SYS_ADMIN,
];

/// Drops all capabilities except the needed ones, and the means to get them back. From now on, only
/// the daemon's user may use files that the daemon makes. Call this before threads are started:
/// each thread has capabilities of its own.
pub fn drop(needs: Needs) -> anyhow::Result<()> {
    umask(Mode::from_bits_retain(0o077));
    let had = capabilities(None).context("the daemon's capabilities can't be read")?;
    if had.effective.contains(CapabilitySet::SYS_RESOURCE) {
        // Kernels before 5.11 count maps as locked memory, and all kernels count large perf rings.
        let unlimited = Rlimit {
            current: None,
            maximum: None,
        };
        setrlimit(Resource::Memlock, unlimited)
            .context("the limit of locked memory can't be lifted")?;
    }
    let kept = |(set, ..): &(CapabilitySet, &str, &str)| had.permitted.contains(*set);
    let mut keep = KEPT
        .iter()
        .filter(|entry| kept(entry))
        .fold(CapabilitySet::empty(), |all, (set, ..)| all | *set);
    for (needed, set) in [
        (needs.low_ports, CapabilitySet::NET_BIND_SERVICE),
        (needs.group, CapabilitySet::CHOWN),
        (needs.addresses, CapabilitySet::SYSLOG),
    ] {
        if needed {
            keep |= had.permitted & set;
        }
    }
    let none = CapabilitySet::empty();
    let inheritable = if needs.loader {
        PASSED_ON.into_iter().fold(none, |all, set| all | set) & keep
    } else {
        none
    };
    // Once the bounding set is empty, nothing can enter the inheritable set.
    set_capabilities(None, CapabilitySets { inheritable, ..had })
        .context("the daemon's capabilities can't be dropped")?;
    set_no_new_privs(true).context("the daemon can't set no_new_privs")?;
    clear_ambient_capability_set().context("the daemon's capabilities can't be dropped")?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        // Nothing that the daemon starts needs a capability, except `xdp-loader`, which inherits
        // some.
        for bit in 0..u64::BITS {
            // Bits that this kernel does not know are refused.
            let _ = remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit));
        }
    }
    let sets = CapabilitySets {
        effective: keep,
        permitted: keep,
        inheritable,
    };
    set_capabilities(None, sets).context("the daemon's capabilities can't be dropped")?;
    let names: Vec<&str> = KEPT
        .iter()
        .filter(|entry| kept(entry))
        .map(|(_, name, _)| *name)
        .collect();
    tracing::debug!(capabilities = names.join(" "), "privileges dropped");
    Ok(())
}

/// Drops all capabilities. The process may have inherited them from a daemon that starts
/// `xdp-loader`.
pub fn drop_all() -> anyhow::Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).context("the capabilities can't be dropped")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the capabilities of the systemd unit and the containers: all of [`KEPT`] except
    /// those that only some probes need.
    fn shipped() -> Vec<&'static str> {
        KEPT.iter()
            .map(|(_, name, _)| *name)
            .filter(|name| !name.starts_with("SYS_"))
            .collect()
    }

    #[test]
    fn unit_daemon_set_and_container_give_what_is_kept() {
        let unit = include_str!("../../../deploy/twinprobe.service");
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
            .unwrap();
        let names: Vec<&str> = line
            .split(' ')
            .map(|name| name.trim_start_matches("CAP_"))
            .collect();
        assert_eq!(names, shipped());

        let pods = include_str!("../../../deploy/kubernetes/twinprobe.yaml");
        let line = pods
            .lines()
            .find_map(|line| line.trim().strip_prefix("add: ["))
            .unwrap();
        let names: Vec<&str> = line
            .trim_end_matches(']')
            .split(", ")
            .map(|name| name.trim_matches('"'))
            .collect();
        assert_eq!(names, shipped());

        let container = include_str!("../../../deploy/Containerfile");
        let names: Vec<String> = container
            .split("--cap-add ")
            .skip(1)
            .map(|rest| rest.split_whitespace().next().unwrap().to_uppercase())
            .collect();
        assert_eq!(names, shipped());
    }

    #[test]
    fn the_documentation_says_what_each_capability_is_for() {
        let text = include_str!("../../../docs/operations.md");
        for (_, name, _) in KEPT {
            assert!(text.contains(&format!("| CAP_{name} |")), "{name}");
        }
    }
}
