//! Three probes at all three hooks, and the changes that other programs make to their attachments.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aya_obj::generated::bpf_cmd;
use serde_json::{Value, json};

use crate::netns::run;
use crate::programs::{bpf, pinned};
use crate::sample::{total, xdp_counter};
use crate::traffic::{Generator, GeneratorOptions};
use crate::wait::wait_for;
use crate::{Daemon, DaemonOptions, EgressForward, Namespace, Topology};

/// The probes' names, directions and interfaces: XDP ingress, observing; TC ingress, enforcing; TC
/// egress, enforcing.
pub const PROBES: [(&str, &str, &str); 3] = [
    ("xdp", "ingress", "mon0"),
    ("tc", "ingress", "mon0"),
    ("out", "egress", "mon1"),
];

/// A topology whose packets meet three probes: the first at mon0 would drop them but only observes,
/// the second lets them pass, and the third drops them as they leave through mon1.
#[derive(Debug)]
pub struct Three {
    pub topology: Topology,
    pub generator: Generator,
    _forward: EgressForward,
}

/// Returns [`xdp_counter`] as a program for TC.
pub fn tc_counter(verdict: &str) -> String {
    xdp_counter(verdict)
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")")
}

impl Three {
    pub fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let forward = topology.forward_to_egress()?;
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        Ok(Self {
            topology,
            generator,
            _forward: forward,
        })
    }

    /// Returns the configuration of each probe, in the order of [`PROBES`]. The interfaces are in
    /// the namespace `netns`, if there is one.
    pub fn configs(netns: Option<&Path>) -> [Value; 3] {
        let metrics = json!([{ "name": "packets", "map": "packets" }]);
        let mut configs = [
            json!({ "interface": "mon0", "ingress": { "source": xdp_counter("XDP_DROP"), "verdict": "observe" } }),
            json!({ "interface": "mon0", "ingress": {
                "hook": "tc", "source": tc_counter("0"), "verdict": "enforce", "position": "first"
            } }),
            json!({ "interface": "mon1", "egress": {
                "source": tc_counter("2"), "verdict": "enforce", "position": "first"
            } }),
        ];
        for (config, (_, direction, _)) in configs.iter_mut().zip(PROBES) {
            config[direction]["metrics"] = metrics.clone();
            if let Some(netns) = netns {
                config["netns"] = json!(netns);
            }
        }
        configs
    }

    /// Deploys the three probes, in the order of [`PROBES`].
    pub fn deploy(&self, daemon: &Daemon, netns: Option<&Path>) {
        for (config, (name, ..)) in Self::configs(netns).iter().zip(PROBES) {
            daemon
                .put(&format!("/v1/probes/{name}"), config)
                .expect(201);
        }
    }

    /// Returns the number of packets that each probe has counted so far.
    pub fn counts(daemon: &Daemon) -> [u64; 3] {
        PROBES.map(|(name, direction, _)| {
            total(
                &daemon.json(&format!("/v1/probes/{name}/metrics")),
                direction,
                "packets",
            )
        })
    }

    /// Sends packets and checks that each probe sees each of them once, and that none leaves.
    pub fn counted(&mut self, daemon: &Daemon) -> Result<()> {
        let (before, left) = (
            Self::counts(daemon),
            self.topology.sink0_stats()?.rx_packets,
        );
        self.generator.send(10)?;
        let now = Self::counts(daemon);
        ensure!(
            now == before.map(|count| count + 10),
            "{before:?}, 10 packets, {now:?}"
        );
        let left = self.topology.sink0_stats()?.rx_packets - left;
        ensure!(left == 0, "{left} packets were not dropped");
        Ok(())
    }

    /// Waits until [`Self::counted`] succeeds.
    pub fn wait_until_counted(&mut self, daemon: &Daemon, limit: Duration) -> Result<()> {
        wait_for(
            "every packet counted once by each, and dropped",
            limit,
            || self.counted(daemon),
        )
    }
}

/// Returns the options of a daemon with `--tc-attach`.
pub fn tc_attach(method: &str) -> DaemonOptions {
    DaemonOptions::default()
        .argument("--tc-attach")
        .argument(method)
}

/// Returns the directory of pins of the dispatcher at an interface and hook (`xdp`, `tc-ingress`,
/// `tc-egress`).
pub fn dispatcher(
    bpffs: &Path,
    namespace: &Namespace,
    interface: &str,
    hook: &str,
) -> Result<PathBuf> {
    let index = format!("_{}_{hook}_", namespace.interface_index(interface)?);
    for entry in std::fs::read_dir(bpffs.join("hooks"))? {
        let path = entry?.path();
        if path.to_str().is_some_and(|name| name.contains(&index)) {
            return Ok(path);
        }
    }
    anyhow::bail!("no dispatcher at {hook} of {interface}")
}

/// Detaches a dispatcher from its interface as another program would: by its link, or by its
/// filter.
pub fn detach(bpffs: &Path, namespace: &Namespace, interface: &str, hook: &str) -> Result<()> {
    let pins = dispatcher(bpffs, namespace, interface, hook)?;
    for entry in std::fs::read_dir(&pins)? {
        let path = entry?.path();
        if path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("link_"))
        {
            return run(
                "bpftool",
                &["link", "detach", "pinned", path.to_str().context("a path")?],
            );
        }
    }
    let direction = hook.trim_start_matches("tc-");
    namespace.run(
        "tc",
        &["filter", "del", "dev", interface, direction, "prio", "1"],
    )
}

/// Replaces the program of a dispatcher's link by a pinned one, as other software could.
pub fn exchange(dispatcher: &Path, program: &Path) -> Result<()> {
    #[repr(C)]
    struct Attr {
        link_fd: u32,
        new_prog_fd: u32,
        flags: u32,
        old_prog_fd: u32,
    }
    let mut entries = std::fs::read_dir(dispatcher)?
        .flatten()
        .map(|entry| entry.path());
    let is_link = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"link_"))
    };
    let link = pinned(&entries.find(is_link).context("a link")?)?;
    let program = pinned(program)?;
    let (link_fd, new_prog_fd) = (link.as_raw_fd() as u32, program.as_raw_fd() as u32);
    bpf(
        bpf_cmd::BPF_LINK_UPDATE,
        &mut Attr {
            link_fd,
            new_prog_fd,
            flags: 0,
            old_prog_fd: 0,
        },
    )
    .context("put another program behind the link")?;
    Ok(())
}

/// Returns the number of the daemon's filters at an interface's `ingress` or `egress`.
pub fn filters(namespace: &Namespace, interface: &str, direction: &str) -> Result<usize> {
    let shown = namespace.output("tc", &["filter", "show", "dev", interface, direction])?;
    Ok(shown.matches("tp_dispatcher direct-action").count())
}

/// A daemon's soft limit of open files before it was lowered; restored on drop.
#[derive(Debug)]
pub struct FewFiles {
    pid: libc::pid_t,
    before: libc::rlimit,
}

impl FewFiles {
    /// Lowers the limit to 0: the daemon can't open any more files.
    pub fn none(daemon: &Daemon) -> Result<Self> {
        Self::limit(daemon, 0)
    }

    /// Lowers the limit so that the daemon can open one more file. The limit is one of descriptors'
    /// numbers.
    pub fn one(daemon: &Daemon) -> Result<Self> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid()))?
            .map(|entry| {
                entry?
                    .file_name()
                    .to_string_lossy()
                    .parse()
                    .context("a descriptor")
            })
            .collect::<Result<BTreeSet<u64>>>()?;
        let free = (0..)
            .find(|number| !open.contains(number))
            .context("a free descriptor")?;
        Self::limit(daemon, free + 1)
    }

    fn limit(daemon: &Daemon, most: u64) -> Result<Self> {
        let pid = libc::pid_t::try_from(daemon.pid())?;
        let mut before = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: structures that live through the call, or none.
        let got =
            unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut before) };
        ensure!(got == 0, "prlimit: {}", std::io::Error::last_os_error());
        let limited = Self { pid, before };
        limited.set(libc::rlimit {
            rlim_cur: most,
            ..before
        })?;
        Ok(limited)
    }

    fn set(&self, limit: libc::rlimit) -> Result<()> {
        // SAFETY: a structure that lives through the call; the old limit is not asked for.
        let set = unsafe {
            libc::prlimit(
                self.pid,
                libc::RLIMIT_NOFILE,
                &raw const limit,
                std::ptr::null_mut(),
            )
        };
        ensure!(set == 0, "prlimit: {}", std::io::Error::last_os_error());
        Ok(())
    }
}

impl Drop for FewFiles {
    fn drop(&mut self) {
        if let Err(error) = self.set(self.before) {
            eprintln!("{error:#}");
        }
    }
}
