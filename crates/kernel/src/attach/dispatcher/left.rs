//! Attachments that call no probe any more: attachments of an earlier daemon, and attachments that
//! could not be removed immediately.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::Hook;

use crate::attach::dispatcher::chain::{NETNS, NETNS_PATH};
use crate::attach::dispatcher::dispatchers::Dispatchers;
use crate::attach::dispatcher::failure::is_final;
use crate::attach::hook::attachment::Attachment;
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::{HookKey, HookPoint, parse_pin_name};
use crate::load::pins;
use crate::net::netns::Netns;

impl Dispatchers {
    /// Makes the dispatchers call exactly the probes that have been added, and detaches attachments
    /// that no probe has claimed. Call this once every probe of the earlier daemon has been added.
    /// If probes are `unsure` about their interfaces, unclaimed attachments stay until the probes
    /// know their interfaces.
    pub fn settle(&self, unsure: bool) {
        let mut by_place = self.by_place.lock();
        let mut settled = Vec::new();
        for (place, dispatcher) in by_place
            .values_mut()
            .filter(|(_, dispatcher)| dispatcher.adopted)
        {
            dispatcher.adopted = false;
            match self.settle_one(dispatcher, place) {
                Ok(()) => settled.push((&*place, &*dispatcher)),
                Err(error) => not_settled(place, &error),
            }
        }
        // The kernel empties slots that have no pin. So the pins stay until no CPU runs a program
        // that calls these slots.
        let waited = if settled.is_empty() {
            Ok(Duration::ZERO)
        } else {
            self.quiescer.quiesce()
        };
        if let Err(error) = waited {
            tracing::error!(%error, "no grace period: slots of earlier probes stay pinned");
            settled.clear();
        }
        for (place, dispatcher) in settled {
            if let Err(error) = dispatcher.unpin_unclaimed() {
                not_settled(place, &place.failed(error));
            }
        }
        let unsure = unsure
            | self.hindered.swap(false, Ordering::Relaxed)
            | self.keeps_unclaimed.load(Ordering::Relaxed);
        let unclaimed = if self.settled.swap(true, Ordering::Relaxed) {
            Ok(std::mem::take(&mut *self.unclaimed.lock())
                .into_iter()
                .collect())
        } else {
            self.all_pins()
        };
        match unclaimed {
            Ok(pins) => {
                let is_claimed =
                    |pins: &PathBuf| key(pins).is_some_and(|key| by_place.contains_key(&key));
                for pins in pins.into_iter().filter(|pins| !is_claimed(pins)) {
                    if unsure {
                        self.unclaimed.lock().insert(pins);
                    } else {
                        tracing::info!(pins = %pins.display(), "an attachment without probes is removed");
                        self.discard(pins);
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "an earlier daemon's attachments could not be listed and stay");
            }
        }
    }

    /// Tells whether pins of an earlier daemon wait for probes that could not look for their
    /// interfaces yet. Once these probes have looked, call [`Self::settle`] again.
    pub fn has_unclaimed(&self) -> bool {
        !self.unclaimed.lock().is_empty()
    }

    /// Keeps, from now on, every attachment that no probe has claimed.
    pub fn keep_unclaimed(&self) {
        self.keeps_unclaimed.store(true, Ordering::Relaxed);
    }

    pub fn is_unclaimed(&self, pins: &Path) -> bool {
        self.unclaimed.lock().contains(pins)
    }

    /// Keeps `pins` for a probe to claim, and keeps [`Self::settle`] from removing them the next
    /// time.
    pub fn leave_unclaimed(&self, pins: PathBuf) {
        self.hindered.store(true, Ordering::Relaxed);
        self.unclaimed.lock().insert(pins);
    }

    fn all_pins(&self) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(&self.root)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    }

    /// Detaches the attachments in `pins` and removes `pins`. If this is not possible now,
    /// [`Self::remove_left`] does it later: no daemon would recognize a filter without pins, so
    /// that it would stay forever.
    pub fn discard(&self, pins: PathBuf) {
        if let Err(error) = remove(&pins, None) {
            tracing::warn!(pins = %pins.display(), %error, "detaching failed; the daemon tries again");
            self.left.lock().insert(pins);
        }
    }

    /// Repeats the removals that were not possible before.
    pub fn remove_left(&self) {
        self.left.lock().retain(|pins| {
            let removed = remove(pins, None);
            if removed.is_ok() {
                tracing::info!(pins = %pins.display(), "an attachment without probes was removed");
            }
            removed.is_err()
        });
    }

    /// Completes the removal of `pins` in `netns`, if it is pending, so that another dispatcher can
    /// have the same path.
    pub fn make_room(&self, pins: &Path, netns: &Netns) -> io::Result<()> {
        let mut left = self.left.lock();
        if left.contains(pins) {
            remove(pins, Some(netns))?;
            left.remove(pins);
        }
        Ok(())
    }
}

fn not_settled(place: &HookPoint, error: &AttachError) {
    let (interface, error) = (&place.interface, with_causes(error));
    tracing::error!(
        interface,
        error,
        "a dispatcher could not be changed to the current probes"
    );
}

/// Detaches the attachments in `pins` and removes `pins`. `known` is the namespace, if the caller
/// has it. After an error another attempt may succeed.
fn remove(pins: &Path, known: Option<&Netns>) -> io::Result<()> {
    if let Some((netns, ifindex, hook, _)) = key(pins)
        && let Some(hook) = Hook::from_name(hook)
    {
        let known = known.filter(|known| known.id() == netns);
        match detach(pins, known, netns, ifindex, hook) {
            Err(error) if !is_final(&error) => return Err(error),
            Err(error) => {
                tracing::debug!(pins = %pins.display(), %error, "nothing was attached for these pins");
            }
            Ok(()) => {}
        }
    }
    pins::remove_directory(pins)
}

fn detach(
    pins: &Path,
    known: Option<&Netns>,
    netns: u64,
    ifindex: u32,
    hook: Hook,
) -> io::Result<()> {
    // A link can be detached from any namespace; other attachments end with their namespace.
    if let Some(link) = Attachment::adopt_link(pins)? {
        return link.detach();
    }
    match known.map_or_else(|| namespace(pins, netns), |known| Ok(Some(known.clone())))? {
        Some(netns) => netns
            .run(|| Attachment::adopt(ifindex, hook, pins)?.map_or(Ok(()), Attachment::detach))
            .flatten(),
        None => Ok(()),
    }
}

/// Finds the namespace of a dispatcher: at its former path, at another path, or through a process.
/// `None` if the namespace has ended. Fails if the state of the namespace is unknown.
fn namespace(pins: &Path, id: u64) -> io::Result<Option<Netns>> {
    let own = Netns::own()?;
    if own.id() == id {
        return Ok(Some(own));
    }
    let link = std::fs::read_link(pins.join(NETNS)).ok();
    let path = link
        .as_deref()
        .and_then(Path::to_str)
        .and_then(|text| text.strip_prefix(NETNS_PATH));
    match path.map(|path| Netns::open(Path::new(path))) {
        Some(Ok(netns)) if netns.id() == id => Ok(Some(netns)),
        // The namespace may still be at its former path.
        Some(Err(error)) if !Netns::is_not_there(&error) => Netns::find(id).map(Some).ok_or(error),
        _ => Ok(Netns::find(id)),
    }
}

fn key(pins: &Path) -> Option<HookKey> {
    pins.file_name()
        .and_then(|name| name.to_str())
        .and_then(parse_pin_name)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;

    use twinprobe_ebpf_common::hook::{Position, XdpKind, XdpMode};

    use super::*;
    use crate::attach::dispatcher::chain::Dispatcher;
    use crate::attach::hook::attachment::TcMethod;
    use crate::attach::hook::xdp_request::XdpRequest;
    use crate::net::netns::testing::{Named, ip};
    use crate::net::rtnl::filter::Parent;
    use crate::net::rtnl::socket::NetlinkSocket;
    use crate::sys::asm;
    use crate::sys::bpffs::testing::PinsDirectory;
    use crate::sys::prog::{self, ProgLoad};

    /// A filter in a namespace of its own, whose path is a symbolic link that can be broken.
    struct Scene {
        named: Named,
        directory: tempfile::TempDir,
        _root: PinsDirectory,
        place: HookPoint,
        pins: PathBuf,
    }

    impl Scene {
        fn new() -> Self {
            let named = Named::new();
            named.ip("link add tpa type veth peer name tpb");
            let directory = tempfile::tempdir().unwrap();
            let link = directory.path().join("netns");
            symlink(named.path(), &link).unwrap();
            let netns = Netns::open(&link).unwrap();
            let ifindex = NetlinkSocket::open(&netns)
                .unwrap()
                .device_by_name("tpa")
                .unwrap()
                .unwrap()
                .index;
            let (hook, position) = (Hook::TcEgress, Position::Last);
            let place = HookPoint {
                netns,
                interface: "tpa".into(),
                ifindex,
                hook,
                position,
            };
            let root = PinsDirectory::new("left");
            let pins = root.0.join(place.pin_name());
            drop(Dispatcher::create(pins.clone(), &place).unwrap());
            let pass = asm::pass_program(0);
            let program = prog::prog_load(&ProgLoad::new("tp_test", hook.kind(), &pass), None);
            let (program, method) = (program.unwrap(), TcMethod::Clsact);
            let xdp = XdpRequest {
                mode: XdpMode::Auto,
                kind: XdpKind::Single,
            };
            let attach = || Attachment::attach(&place, xdp, method, program.as_fd(), &pins);
            place.netns.run(attach).unwrap().unwrap();
            Self {
                named,
                directory,
                _root: root,
                place,
                pins,
            }
        }

        fn filters(&self) -> usize {
            let filters = || {
                let parent = Parent {
                    ifindex: self.place.ifindex,
                    egress: true,
                };
                NetlinkSocket::here()
                    .unwrap()
                    .filters(parent)
                    .unwrap()
                    .iter()
                    .filter(|f| f.program.is_some())
                    .count()
            };
            self.place.netns.run(filters).unwrap()
        }

        /// Replaces the path by a link to itself, which can't be opened.
        fn break_path(&self) {
            let link = self.directory.path().join("netns");
            std::fs::remove_file(&link).unwrap();
            symlink("netns", link).unwrap();
        }
    }

    #[test]
    fn a_filter_is_found_although_its_path_fails() {
        let scene = Scene::new();
        scene.break_path();
        remove(&scene.pins, None).unwrap();
        assert_eq!(scene.filters(), 0);
        assert!(!scene.pins.exists());
    }

    #[test]
    fn a_filter_that_is_not_found_keeps_its_pins() {
        let scene = Scene::new();
        scene.break_path();
        // Neither a name nor a process leads to the namespace.
        let hidden = scene.directory.path().join("hidden");
        std::fs::write(&hidden, "").unwrap();
        let (from, to) = (scene.named.path(), hidden.display().to_string());
        let mount = |arguments: &[&str]| {
            assert!(
                std::process::Command::new(arguments[0])
                    .args(&arguments[1..])
                    .status()
                    .unwrap()
                    .success()
            );
        };
        mount(&["mount", "--bind", from.to_str().unwrap(), &to]);
        ip(&format!("netns del {}", scene.named.0));
        let unknown = remove(&scene.pins, None);
        let kept = scene.pins.exists();
        let left = scene.filters();
        let removed = remove(&scene.pins, Some(&scene.place.netns));
        mount(&["umount", &to]);
        assert!(unknown.is_err() && kept && left == 1, "{unknown:?}");
        removed.unwrap();
        assert_eq!(scene.filters(), 0);
        assert!(!scene.pins.exists());
    }
}
