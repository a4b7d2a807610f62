//! The cgroups of pods, and the processes in them. Kubelets name cgroups by the pod's uid:
//! `kubepods/burstable/podUID` (cgroupfs), or `kubepods-burstable-podUID.slice` with `_` for `-`
//! (systemd).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The deepest cgroup that the search visits: a pod may be in a node that is itself a container.
const DEPTH: usize = 12;
/// The most cgroups that the search visits, and the most processes of a pod.
const CGROUPS: usize = 1 << 16;
const PROCESSES: usize = 256;

/// Finds the cgroups of pods below `root`, and the processes in them. A pod without a cgroup is not
/// in the result. Fails if the root can't be read. A cgroup that disappears during the search has
/// no processes.
pub fn processes<'a>(
    root: &Path,
    uids: impl Iterator<Item = &'a str>,
) -> io::Result<BTreeMap<&'a str, BTreeSet<u32>>> {
    let mut names = BTreeMap::new();
    for uid in uids {
        names.insert(uid.to_owned(), uid);
        names.insert(uid.replace('-', "_"), uid);
    }
    let mut found: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let mut open: Vec<(PathBuf, usize)> = children(root)?.map(|path| (path, 1)).collect();
    let mut looked = 0;
    while let Some((path, depth)) = open.pop() {
        looked += 1;
        if looked > CGROUPS {
            return Err(io::Error::other(format!(
                "there are more than {CGROUPS} cgroups below {}",
                root.display()
            )));
        }
        match uid_in(&path).map(|uid| names.get(uid)) {
            Some(Some(uid)) => {
                // With cgroups of version 1 a pod has a cgroup for each controller, with the same
                // processes.
                let processes = found.entry(uid).or_default();
                if processes.is_empty() {
                    gather(&path, processes, 0);
                }
            }
            // A pod has no pods in it.
            Some(None) => {}
            None if depth < DEPTH => {
                open.extend(
                    children(&path)
                        .into_iter()
                        .flatten()
                        .map(|path| (path, depth + 1)),
                );
            }
            None => {}
        }
    }
    Ok(found)
}

/// Returns the uid in the name of a pod's cgroup. If systemd has made the cgroup, the uid has `_`
/// instead of `-`.
fn uid_in(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let own = match name.strip_suffix(".slice") {
        Some(slice) => slice.rsplit('-').next()?,
        None => name,
    };
    // `pods` and `podruntime` don't name a pod.
    own.strip_prefix("pod").filter(|uid| {
        uid.bytes()
            .any(|byte| byte.is_ascii_digit() || byte == b'-')
    })
}

/// Adds the processes of a cgroup, and of the cgroups in it.
fn gather(cgroup: &Path, processes: &mut BTreeSet<u32>, depth: usize) {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process that this process can't see.
    let pids = text
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter(|pid: &u32| *pid != 0);
    processes.extend(pids.take(PROCESSES.saturating_sub(processes.len())));
    if depth < DEPTH && processes.len() < PROCESSES {
        children(cgroup)
            .into_iter()
            .flatten()
            .for_each(|child| gather(&child, processes, depth + 1));
    }
}

/// Returns the cgroups that are directly in a cgroup.
fn children(cgroup: &Path) -> io::Result<impl Iterator<Item = PathBuf> + use<>> {
    let entries = fs::read_dir(cgroup)?.flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| entry.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_by_both_kinds_of_names() {
        let root = tempfile::tempdir().unwrap();
        let uid = |last: char| format!("1b2c3d4e-0000-4000-8000-00000000000{last}");
        let make = |path: &str, processes: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), processes).unwrap();
        };
        make("system.slice/podruntime", "7\n");
        make(
            &format!("kubepods/burstable/pod{}/inner", uid('1')),
            "11\n12\n",
        );
        let slice = format!(
            "kubepods-besteffort-pod{}.slice",
            uid('2').replace('-', "_")
        );
        make(
            &format!("kubepods.slice/kubepods-besteffort.slice/{slice}"),
            "",
        );
        make(
            &format!("kubepods.slice/kubepods-besteffort.slice/{slice}/cri-1.scope"),
            "0\n21\n",
        );
        make("kubepods/pod0123456789abcdef0123456789abcdef", "31\n");
        make(&format!("kubepods/pod{}", uid('4')), "41\n");
        let uids = [
            uid('1'),
            uid('2'),
            "0123456789abcdef0123456789abcdef".to_owned(),
            uid('3'),
        ];
        let found = processes(root.path(), uids.iter().map(String::as_str)).unwrap();
        let expected = [
            (&*uids[2], vec![31]),
            (&uids[0], vec![11, 12]),
            (&uids[1], vec![21]),
        ];
        let expected = expected.map(|(uid, pids)| (uid, pids.into_iter().collect()));
        assert_eq!(found, BTreeMap::from(expected));
        assert!(processes(&root.path().join("none"), std::iter::empty()).is_err());
    }
}
