//! The host's interfaces for pods, found without a container runtime: the processes in a pod's
//! cgroup are in the pod's network namespace, and the kernel tells which interfaces lead to that
//! namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::net::addresses;
use crate::net::cgroups;
use crate::net::rtnl::peers;
use crate::net::rtnl::socket::NetlinkSocket;

/// The network of a pod, as the last look has found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodPlace {
    /// The names and indices of the interfaces that lead to the pod, sorted: at least one. After
    /// them come the addresses in the pod's network namespace, sorted.
    Interfaces(Vec<(String, u32)>, Vec<IpAddr>),
    /// All processes of the pod are in the namespace of this process.
    HostNetwork,
    /// The pod has no interface yet, for this reason.
    Nowhere(&'static str),
}

/// The directories in which pods are searched. The processes of the pods must be visible in
/// `/proc`.
#[derive(Clone, Debug)]
pub struct PodFinder {
    /// The root of the cgroups, of version 2, or of the hierarchies of version 1.
    pub cgroups: PathBuf,
}

impl PodFinder {
    /// Looks for all pods at once. An error means that no pod is known.
    pub fn find<'a>(
        &self,
        uids: impl Iterator<Item = &'a str> + Clone,
    ) -> io::Result<BTreeMap<&'a str, PodPlace>> {
        let failed = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("cgroups below {}: {error}", self.cgroups.display()),
            )
        };
        let processes = cgroups::processes(&self.cgroups, uids.clone()).map_err(failed)?;
        let mut socket = NetlinkSocket::here()?;
        // The list comes first, because it makes the kernel give each namespace its number.
        let links = peers::leading_away(&mut socket)?;
        let own =
            namespace("thread-self").ok_or_else(|| io::Error::other("/proc can't be read"))?;
        let mut found = BTreeMap::new();
        for uid in uids {
            let place = match processes.get(uid) {
                None => PodPlace::Nowhere("its cgroup is not there yet"),
                Some(processes) => place(&mut socket, &links, own, processes)?,
            };
            found.insert(uid, place);
        }
        Ok(found)
    }
}

fn place(
    socket: &mut NetlinkSocket,
    links: &BTreeMap<u32, Vec<(String, u32)>>,
    own: u64,
    processes: &BTreeSet<u32>,
) -> io::Result<PodPlace> {
    let mut seen = BTreeSet::new();
    for pid in processes {
        let Some(namespace) = namespace(&pid.to_string()) else {
            continue;
        };
        // Runtimes have processes of their own in a pod's cgroup, in the host's namespace. A pod
        // may have further namespaces in its own.
        if !seen.insert(namespace) || namespace == own {
            continue;
        }
        let number = peers::number_of(socket, *pid)?;
        if let Some(interfaces) = number.and_then(|number| links.get(&number)) {
            let mut interfaces = interfaces.clone();
            interfaces.sort();
            return Ok(PodPlace::Interfaces(
                interfaces,
                addresses::of_process(*pid),
            ));
        }
    }
    let is_here = seen.remove(&own);
    Ok(match (is_here, seen.is_empty()) {
        (true, true) => PodPlace::HostNetwork,
        (false, true) => PodPlace::Nowhere("its cgroup has no process yet"),
        (_, false) => PodPlace::Nowhere(NO_INTERFACE),
    })
}

const NO_INTERFACE: &str = "no interface of the host leads to its network namespace yet";

/// Returns a number that is the same for two processes in one network namespace: the inode of a
/// file that the kernel makes for each namespace. The read of this inode needs no privilege, unlike
/// `/proc/PID/ns/net`.
fn namespace(process: &str) -> Option<u64> {
    std::fs::metadata(format!("/proc/{process}/net/dev"))
        .ok()
        .map(|file| file.ino())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::{Child, Command};

    use super::*;
    use crate::net::netns::testing::{Named, ip};

    struct Inside(Child);

    impl Drop for Inside {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper(named: Option<&Named>) -> Inside {
        let mut command = match named {
            Some(named) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &named.0, "sleep", "600"]);
                command
            }
            None => {
                let mut command = Command::new("sleep");
                command.arg("600");
                command
            }
        };
        Inside(command.spawn().unwrap())
    }

    fn write(root: &Path, uid: &str, processes: &[&Inside]) {
        let path = root.join(format!("pod{uid}"));
        fs::create_dir_all(&path).unwrap();
        let lines: String = processes
            .iter()
            .map(|process| format!("{}\n", process.0.id()))
            .collect();
        fs::write(path.join("cgroup.procs"), lines).unwrap();
    }

    #[test]
    fn interfaces_are_found_by_a_process_of_the_pod() {
        let root = tempfile::tempdir().unwrap();
        let finder = PodFinder {
            cgroups: root.path().to_owned(),
        };
        let (pod, other) = (Named::new(), Named::new());
        let find = |uid: &str| finder.find([uid].into_iter()).unwrap().remove(uid).unwrap();
        assert_eq!(
            find("a-1"),
            PodPlace::Nowhere("its cgroup is not there yet")
        );
        write(root.path(), "a-1", &[]);
        assert_eq!(
            find("a-1"),
            PodPlace::Nowhere("its cgroup has no process yet")
        );
        let (host, inside, elsewhere) = (sleeper(None), sleeper(Some(&pod)), sleeper(Some(&other)));
        write(root.path(), "a-1", &[&host]);
        assert_eq!(find("a-1"), PodPlace::HostNetwork);
        // `ip netns exec` needs some time to enter the namespace.
        let own = namespace("thread-self");
        while [&inside, &elsewhere]
            .iter()
            .any(|process| namespace(&process.0.id().to_string()) == own)
        {
            std::thread::yield_now();
        }
        write(root.path(), "a-1", &[&host, &inside]);
        assert_eq!(find("a-1"), PodPlace::Nowhere(NO_INTERFACE));
        let name = format!("tpp{}", std::process::id() % 100_000);
        ip(&format!(
            "link add {name} type veth peer name tpb netns {}",
            pod.0
        ));
        let index = fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).unwrap();
        let links = vec![(name.clone(), index.trim().parse().unwrap())];
        let expected = PodPlace::Interfaces(links.clone(), Vec::new());
        assert_eq!(find("a-1"), expected);
        // The pod's second namespace has no interface to the host.
        write(root.path(), "a-1", &[&elsewhere, &inside]);
        assert_eq!(find("a-1"), expected);
        ip(&format!("-n {} link set tpb up", pod.0));
        for address in ["192.0.2.7/24", "2001:db8::7/64"] {
            ip(&format!("-n {} addr add {address} dev tpb nodad", pod.0));
        }
        let addresses = ["192.0.2.7", "2001:db8::7"].map(|address| address.parse().unwrap());
        assert_eq!(find("a-1"), PodPlace::Interfaces(links, addresses.into()));
        write(root.path(), "a-1", &[&elsewhere]);
        assert_eq!(find("a-1"), PodPlace::Nowhere(NO_INTERFACE));
        ip(&format!("link del {name}"));
        drop(inside);
    }
}
