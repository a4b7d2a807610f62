//! Facts about this machine: its kernel, the privileges of this process, file systems and limits.

use std::fs;
use std::path::{Path, PathBuf};

use twinprobe_ebpf_common::MapKind;
use twinprobe_kernel::extraction::operations;

use crate::local::check::Check;
use twinprobe_cli::output::units;

/// The capabilities that the daemon needs, with their bits in `CapEff`.
const NEEDED: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_NET_ADMIN", 12)];
/// The capabilities without which some functions of the daemon do not work.
const USEFUL: [(&str, u32, &str); 2] = [
    (
        "CAP_PERFMON",
        38,
        "programs with pointer arithmetic or loops over the packet are refused",
    ),
    (
        "CAP_SYS_ADMIN",
        21,
        "running probes are not measured (--measure-cost), and other network namespaces are out of reach",
    ),
];
const SYS_ADMIN: u32 = 21;
const STATE: &str = "/var/lib/twinprobe";
/// The default room in bytes for retained windows (`--retain-bytes`).
const ROOM: u64 = 1 << 30;
const FILES: u64 = 1024;

/// The files with the properties of a machine.
#[derive(Clone, Debug)]
pub struct MachineFiles {
    pub proc: PathBuf,
    pub sys: PathBuf,
}

impl Default for MachineFiles {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
        }
    }
}

impl MachineFiles {
    fn proc(&self, path: &str) -> String {
        read(&self.proc.join(path))
    }

    fn sys(&self, path: &str) -> String {
        read(&self.sys.join(path))
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Makes all checks that need no trial.
pub fn checks(host: &MachineFiles) -> Vec<Check> {
    let mut checks = vec![Check::ok(
        "kernel",
        format!(
            "{} ({})",
            host.proc("sys/kernel/osrelease"),
            std::env::consts::ARCH
        ),
    )];
    checks.extend(privileges(host));
    checks.push(lockdown(host));
    checks.push(jit(host));
    checks.push(btf(host));
    checks.push(bpffs(host));
    checks.push(limits(host));
    checks.push(state());
    checks.push(interfaces(host));
    checks.extend(grace_periods());
    checks
}

/// Checks for remains of a dead daemon. The result is `None` if there are none.
fn grace_periods() -> Option<Check> {
    let switch = twinprobe_kernel::left_on().ok().flatten()?;
    Some(Check::warning(
        "grace periods",
        format!(
            "a daemon that has died has left {} on, so all CPUs have more interrupts",
            switch.display()
        ),
        format!(
            "start the daemon, which turns it off; or: echo 0 > {}",
            switch.display()
        ),
    ))
}

fn privileges(host: &MachineFiles) -> Vec<Check> {
    let status = host.proc("self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or_default();
    let has = |bit: u32| effective >> bit & 1 == 1 || effective >> SYS_ADMIN & 1 == 1 && bit != 12;
    let lacking: Vec<&str> = NEEDED
        .iter()
        .filter(|(_, bit)| !has(*bit))
        .map(|(name, _)| *name)
        .collect();
    if !lacking.is_empty() {
        return vec![Check::failed(
            "privileges",
            format!("this user lacks {}", lacking.join(" and ")),
            "run the daemon as root (it drops the privileges that it does not need), or with the systemd \
                unit; its clients do not need these privileges",
        )];
    }
    let mut checks = vec![Check::ok(
        "privileges",
        "CAP_BPF and CAP_NET_ADMIN are there",
    )];
    for (name, bit, without) in USEFUL {
        if !has(bit) {
            checks.push(Check::warning(
                "privileges",
                format!("no {name}: {without}"),
                format!("add {name}"),
            ));
        }
    }
    checks
}

fn lockdown(host: &MachineFiles) -> Check {
    let modes = host.sys("kernel/security/lockdown");
    let mode = modes.split(['[', ']']).nth(1).unwrap_or("none");
    match mode {
        "confidentiality" => Check::failed(
            "lockdown",
            "the kernel is locked down for confidentiality, so that no program may read packets",
            "boot with lockdown=integrity, or without the parameter",
        ),
        mode => Check::ok("lockdown", mode),
    }
}

fn jit(host: &MachineFiles) -> Check {
    match host.proc("sys/net/core/bpf_jit_enable").as_str() {
        "0" => Check::warning(
            "jit",
            "the JIT compiler of the kernel is off: probes cost several times as much, and the kernel may \
                lack tail calls from subprograms",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        // Kernels that always compile have no such file, and others let only root read it.
        "" => Check::ok("jit", "not known; it is always on in most kernels"),
        _ => Check::ok("jit", "on"),
    }
}

fn btf(host: &MachineFiles) -> Check {
    let path = host.sys.join("kernel/btf/vmlinux");
    if path.exists() {
        return Check::ok("btf", path.display().to_string());
    }
    Check::warning(
        "btf",
        "the kernel does not describe its types",
        "only sources that use the kernel's own types (CO-RE) need it: a kernel with CONFIG_DEBUG_INFO_BTF=y",
    )
}

fn bpffs(host: &MachineFiles) -> Check {
    let mounts = host.proc("self/mounts");
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "bpf").then(|| place.to_owned())
    });
    match mounted {
        Some(place) => Check::ok("bpf file system", format!("mounted at {place}")),
        None if host.proc("filesystems").contains("bpf") => Check::warning(
            "bpf file system",
            "not mounted",
            "the daemon mounts it if it may; else: mount -t bpf bpf /sys/fs/bpf",
        ),
        None => Check::failed(
            "bpf file system",
            "the kernel has none",
            "a kernel with CONFIG_BPF_SYSCALL=y",
        ),
    }
}

fn limits(host: &MachineFiles) -> Check {
    let limits = host.proc("self/limits");
    let soft = |name: &str| -> Option<u64> {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let word = line.split_whitespace().next()?;
        if word == "unlimited" {
            Some(u64::MAX)
        } else {
            word.parse().ok()
        }
    };
    let (files, locked) = (soft("Max open files"), soft("Max locked memory"));
    if files.is_some_and(|files| files < FILES) {
        return Check::warning(
            "limits",
            format!("{} open files", files.unwrap_or_default()),
            "raise it (LimitNOFILE=, ulimit -n): each map, program and client takes a descriptor",
        );
    }
    let shown = |limit: Option<u64>, text: fn(f64) -> String| match limit {
        Some(u64::MAX) => "unlimited".to_owned(),
        Some(limit) => text(limit as f64),
        None => "not known".to_owned(),
    };
    let (files, locked) = (shown(files, units::count), shown(locked, units::bytes));
    Check::ok(
        "limits",
        format!("{files} open files, {locked} locked memory (counts before Linux 5.11)"),
    )
}

fn state() -> Check {
    let path = Path::new(STATE);
    let place = path
        .ancestors()
        .find(|place| place.exists())
        .unwrap_or(Path::new("/"));
    let Ok(found) = rustix::fs::statvfs(place) else {
        return Check::warning(
            "state",
            format!("{} can't be read", place.display()),
            "see --state-dir",
        );
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let text = format!("{} free for {STATE}", units::bytes(free as f64));
    if found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Check::failed(
            "state",
            format!("{} is read-only", place.display()),
            "name another place: --state-dir",
        );
    }
    if free < ROOM {
        return Check::warning(
            "state",
            text,
            "make room, or let windows take less: --retain-bytes, `retain` of a probe",
        );
    }
    Check::ok("state", text)
}

fn interfaces(host: &MachineFiles) -> Check {
    let entries = fs::read_dir(host.sys.join("class/net"))
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<String> = entries
        .map(|entry| {
            let driver = fs::read_link(entry.path().join("device/driver")).ok();
            let driver = driver
                .as_ref()
                .and_then(|driver| driver.file_name())
                .map(|name| name.to_string_lossy().into_owned());
            let name = entry.file_name().to_string_lossy().into_owned();
            driver.map_or(name.clone(), |driver| format!("{name} ({driver})"))
        })
        .collect();
    found.sort();
    if found.is_empty() {
        return Check::warning(
            "interfaces",
            "none",
            "a daemon in a container needs the network of the host",
        );
    }
    Check::ok("interfaces", found.join(", "))
}

/// Tries to make a map of each kind.
pub fn maps() -> Vec<Check> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let tried = MapKind::ALL.map(|kind| (kind.name(), operations(kind, cpus).err()));
    let (works, lacks): (Vec<_>, Vec<_>) =
        tried.into_iter().partition(|(_, error)| error.is_none());
    if works.is_empty() {
        let error = lacks
            .into_iter()
            .find_map(|(_, error)| error)
            .map(|error| error.to_string())
            .unwrap_or_default();
        let change = "run it as root; in a container, the seccomp profile must allow bpf(2)";
        return vec![Check::failed(
            "maps",
            format!("no map can be made: {error}"),
            change,
        )];
    }
    let mut checks = vec![Check::ok(
        "maps",
        format!("{} of {} kinds", works.len(), works.len() + lacks.len()),
    )];
    if !lacks.is_empty() {
        let names: Vec<String> = lacks
            .iter()
            .filter_map(|(name, error)| Some(format!("{name} ({})", error.as_ref()?)))
            .collect();
        checks.push(Check::warning(
            "maps",
            format!("without {}", names.join(", ")),
            "a later kernel has them",
        ));
    }
    checks
}

#[cfg(test)]
mod tests;
