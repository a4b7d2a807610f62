//! Pods as a kubelet and a container runtime make them: a cgroup named by the uid, a network
//! namespace, a process in both, and a veth pair from there to the host.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::netns::{Namespace, unique_prefix};
use crate::topology::veth_pair;

/// The interface inside of a pod.
pub const ETH0: &str = "eth0";

/// The driver by which the kubelet names cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    Systemd,
    Cgroupfs,
}

/// A pod. Its parts are made one by one, in any order. Drop removes all of it.
#[derive(Debug)]
pub struct Pod {
    pub uid: String,
    pub name: String,
    /// The name of the host's side of its interface.
    pub interface: String,
    namespace: Namespace,
    driver: CgroupDriver,
    process: Option<Child>,
    user: Option<u32>,
    /// The cgroups that were made, the innermost last.
    cgroups: Vec<PathBuf>,
}

impl Pod {
    /// Makes a network namespace, and nothing else.
    pub fn new(driver: CgroupDriver) -> Result<Self> {
        Self::with_uid(driver, None)
    }

    /// Makes the network namespace of a pod that has a uid already.
    pub fn with_uid(driver: CgroupDriver, uid: Option<&str>) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let own = || format!("{process:08x}-1b2c-4d5e-8f60-{number:012x}");
        Ok(Self {
            uid: uid.map_or_else(own, str::to_owned),
            name: format!("web-{number}"),
            interface: format!("veth{number}"),
            namespace: Namespace::create(&format!("{}-pod", unique_prefix()))?,
            driver,
            process: None,
            user: None,
            cgroups: Vec::new(),
        })
    }

    /// Makes all parts: cgroup, process and interface.
    pub fn complete(driver: CgroupDriver, host: &Namespace) -> Result<Self> {
        let mut pod = Self::new(driver)?;
        pod.start(host)?;
        Ok(pod)
    }

    /// Makes all parts that a new one lacks.
    pub fn start(&mut self, host: &Namespace) -> Result<()> {
        self.make_cgroup()?;
        self.run()?;
        self.connect(host)
    }

    /// Lets the process run as another user than root.
    #[must_use]
    pub fn of_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Makes the pod's cgroup, and one for a container in it.
    pub fn make_cgroup(&mut self) -> Result<()> {
        let top = format!("{}-{}", unique_prefix(), std::process::id());
        let names = match self.driver {
            CgroupDriver::Systemd => {
                let slice = format!("kubepods-burstable-pod{}.slice", self.uid.replace('-', "_"));
                [
                    top,
                    "kubepods-burstable.slice".to_owned(),
                    slice,
                    "cri-containerd-1.scope".to_owned(),
                ]
            }
            CgroupDriver::Cgroupfs => [
                top,
                "kubepods".to_owned(),
                format!("pod{}", self.uid),
                "container".to_owned(),
            ],
        };
        let mut path = unified()?;
        for name in names {
            path.push(name);
            fs::create_dir(&path).with_context(|| format!("make the cgroup {}", path.display()))?;
            self.cgroups.push(path.clone());
        }
        Ok(())
    }

    /// Starts a process in the pod's namespace and cgroup.
    pub fn run(&mut self) -> Result<()> {
        self.run_in(&self.namespace.clone())
    }

    /// Starts the process in another namespace, such as the host's.
    pub fn run_in(&mut self, namespace: &Namespace) -> Result<()> {
        let mut command = Command::new("sleep");
        command.arg("600");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let process = namespace.enter(|| command.spawn())??;
        let pid = process.id();
        self.process = Some(process);
        let cgroup = self.cgroups.last().context("the pod has no cgroup yet")?;
        fs::write(cgroup.join("cgroup.procs"), pid.to_string()).context("enter the pod's cgroup")
    }

    /// Connects the pod with the host.
    pub fn connect(&self, host: &Namespace) -> Result<()> {
        veth_pair(&self.namespace, ETH0, host, &self.interface)
    }

    /// Ends the process and removes the cgroup. The interface ends with [`Self::disconnect`] or the
    /// namespace.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        for cgroup in self.cgroups.drain(..).rev() {
            let _ = fs::remove_dir(cgroup);
        }
    }

    /// Removes the pod's interface.
    pub fn disconnect(&self) -> Result<()> {
        self.namespace.run("ip", &["link", "del", ETH0])
    }

    /// Returns the pod's entry in the table of a node.
    pub fn entry(&self, labels: &Value, namespace_labels: &Value) -> Value {
        json!({
            "uid": self.uid, "namespace": "shop", "name": self.name, "labels": labels, "namespace_labels": namespace_labels,
            "workload": { "kind": "Deployment", "name": "web" },
        })
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns where cgroups of version 2 are mounted.
fn unified() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut mounts = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mounts.find(|fields| fields.get(2) == Some(&"cgroup2"));
    mount
        .and_then(|fields| fields.get(1).map(|path| Path::new(path).to_owned()))
        .context("cgroup2 is not mounted")
}
