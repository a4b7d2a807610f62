//! The pods that a local agent has reported, and the findings of the last look about each.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use twinprobe_api::{PodEntry, PodList, PodStatus, PodTable};
use twinprobe_config::PodSelector;
use twinprobe_ebpf_common::window::Window;
use twinprobe_ebpf_common::window::owner::{AddressOwner, OwnersAt};
use twinprobe_kernel::{PodFinder, PodPlace};

use crate::engine::pods::names::{InterfacePods, names};
use crate::engine::pods::options::PodOptions;
use crate::engine::pods::owners::OwnerBook;
use crate::engine::pods::services::ServiceNames;

/// The time for which a pod may still be starting if all of its processes are in the host's
/// namespace: runtimes begin there.
const STARTING: Duration = Duration::from_secs(30);

/// All pods of the node.
#[derive(Debug)]
pub struct NodePods {
    finder: PodFinder,
    known: RwLock<KnownPods>,
    /// A lock that is held during a look and during a change of the table, so that a look can't
    /// store its findings for an older table.
    looking: Mutex<()>,
    /// The names for documents.
    pub names: Arc<InterfacePods>,
    /// The owners of addresses, if documents name them.
    owners: Option<OwnerBook>,
    /// A notification that wakes the search after each change that may add interfaces.
    pub stirred: Notify,
}

#[derive(Debug, Default)]
struct KnownPods {
    pods: Vec<KnownPod>,
    services: Arc<ServiceNames>,
    /// The reason why the last look failed.
    error: Option<String>,
}

#[derive(Clone, Debug)]
struct KnownPod {
    entry: PodEntry,
    place: PodPlace,
    since: Instant,
}

impl KnownPod {
    fn name(&self) -> String {
        format!("{}/{}", self.entry.namespace, self.entry.name)
    }

    fn is_selected(&self, selector: &PodSelector) -> bool {
        selector.selects(&self.entry.labels, &self.entry.namespace_labels)
    }
}

/// The interfaces and pods that a selector selects now.
#[derive(Debug, Default)]
pub struct SelectedPods {
    /// The names and indices of the interfaces.
    pub interfaces: Vec<(String, u32)>,
    /// The pods without an interface, each with the reason.
    pub waiting: Vec<(String, &'static str)>,
    /// The number of pods without an interface because they use the host's network.
    pub on_host: usize,
    /// The reason why the present state is not known; `None` if it is known.
    pub error: Option<String>,
}

impl NodePods {
    /// Makes the pods of a table, and looks for them.
    pub fn new(options: PodOptions, table: PodTable) -> Self {
        let finder = PodFinder {
            cgroups: options.cgroups,
        };
        let owners = options.kubernetes.then(OwnerBook::default);
        let (known, looking, stirred) = (RwLock::default(), Mutex::default(), Notify::new());
        let pods = Self {
            finder,
            known,
            looking,
            names: Arc::default(),
            owners,
            stirred,
        };
        pods.set(table);
        pods.look();
        pods
    }

    /// Replaces the table. The findings about pods that stay are kept.
    pub fn set(&self, table: PodTable) {
        let _looking = self.looking.lock();
        let mut known = self.known.write();
        let before = std::mem::take(&mut known.pods).into_iter();
        let mut before: BTreeMap<String, KnownPod> =
            before.map(|pod| (pod.entry.uid.clone(), pod)).collect();
        let found = |entry: PodEntry| match before.remove(&entry.uid) {
            Some(pod) => KnownPod { entry, ..pod },
            None => {
                let place = PodPlace::Nowhere("the daemon has not looked for it yet");
                KnownPod {
                    entry,
                    place,
                    since: Instant::now(),
                }
            }
        };
        known.pods = table.pods.into_iter().map(found).collect();
        known.services = Arc::new(ServiceNames::new(&table.services));
        self.names.set(known.named());
    }

    /// Tells whether documents name the owners of addresses.
    pub const fn has_owners(&self) -> bool {
        self.owners.is_some()
    }

    /// Returns the owners of addresses at the end of a window, or the present owners.
    pub fn owners_at(&self, window: Option<&Window>) -> Option<OwnersAt> {
        self.owners.as_ref()?.at(window)
    }

    /// Looks for all pods, which may take some milliseconds. Returns true if anything has changed.
    pub fn look(&self) -> bool {
        let _looking = self.looking.lock();
        let uids: Vec<String> = self
            .known
            .read()
            .pods
            .iter()
            .map(|pod| pod.entry.uid.clone())
            .collect();
        let found = match uids.is_empty() {
            true => Ok(BTreeMap::new()),
            false => self.finder.find(uids.iter().map(String::as_str)),
        };
        let mut known = self.known.write();
        let differs = known.take(found);
        self.names.set(known.named());
        if let Some(owners) = &self.owners {
            owners.set(known.owners(), Timestamp::now());
        }
        differs
    }

    /// Returns the interfaces that a selector selects, as the last look found them.
    pub fn selected(&self, selector: &PodSelector) -> SelectedPods {
        let known = self.known.read();
        let mut selected = SelectedPods {
            error: known.error.clone(),
            ..SelectedPods::default()
        };
        for pod in known.pods.iter().filter(|pod| pod.is_selected(selector)) {
            match &pod.place {
                PodPlace::Interfaces(interfaces, _) => {
                    selected.interfaces.extend(interfaces.iter().cloned());
                }
                PodPlace::HostNetwork => selected.on_host += 1,
                PodPlace::Nowhere(reason) => selected.waiting.push((pod.name(), reason)),
            }
        }
        selected
    }

    /// Tells whether the next look may find more interfaces for a selector, although the kernel
    /// reports no change.
    pub fn is_short_of(&self, selector: &PodSelector) -> bool {
        let known = self.known.read();
        let is_short = |pod: &KnownPod| match pod.place {
            PodPlace::Interfaces(..) => false,
            PodPlace::HostNetwork => pod.since.elapsed() < STARTING,
            PodPlace::Nowhere(_) => true,
        };
        known.error.is_some()
            || known
                .pods
                .iter()
                .any(|pod| is_short(pod) && pod.is_selected(selector))
    }

    /// Returns all pods with the findings about them, in the order of the table.
    pub fn list(&self) -> PodList {
        let known = self.known.read();
        let pods = known.pods.iter().map(status).collect();
        PodList {
            pods,
            services: known.services.number,
            error: known.error.clone(),
        }
    }

    /// Returns the Services of the table.
    pub fn services(&self) -> Arc<ServiceNames> {
        Arc::clone(&self.known.read().services)
    }
}

impl KnownPods {
    /// Returns the interfaces that were found, each with its pod.
    fn named(&self) -> impl Iterator<Item = (&(String, u32), &PodEntry)> {
        self.pods.iter().flat_map(|pod| {
            let interfaces = match &pod.place {
                PodPlace::Interfaces(interfaces, _) => &interfaces[..],
                PodPlace::HostNetwork | PodPlace::Nowhere(_) => &[],
            };
            interfaces.iter().map(|interface| (interface, &pod.entry))
        })
    }

    /// Returns the pods that were found and the Services, by their addresses. A pod comes before a
    /// Service.
    fn owners(&self) -> HashMap<IpAddr, AddressOwner> {
        let mut owners = self.services.owners();
        for pod in &self.pods {
            if let PodPlace::Interfaces(_, addresses) = &pod.place {
                let owner = AddressOwner::Pod(names(&pod.entry));
                owners.extend(
                    addresses
                        .iter()
                        .map(|address| (address.to_canonical(), owner.clone())),
                );
            }
        }
        owners
    }

    /// Stores the findings of a look. Returns true if anything has changed.
    fn take(&mut self, found: io::Result<BTreeMap<&str, PodPlace>>) -> bool {
        match found {
            Ok(mut found) => {
                let mut differs = self.error.take().is_some();
                for pod in &mut self.pods {
                    if let Some(place) = found.remove(&*pod.entry.uid)
                        && place != pod.place
                    {
                        (pod.place, differs) = (place, true);
                    }
                }
                differs
            }
            Err(error) => {
                let failure = Some(format!("the daemon can't look for pods: {error}"));
                let differs = self.error != failure;
                if differs {
                    tracing::warn!(%error, "the daemon can't look for pods; probes stay on their interfaces");
                }
                self.error = failure;
                differs
            }
        }
    }
}

fn status(pod: &KnownPod) -> PodStatus {
    let PodEntry {
        uid,
        namespace,
        name,
        labels,
        namespace_labels,
        workload,
    } = pod.entry.clone();
    let (interfaces, reason) = match &pod.place {
        PodPlace::Interfaces(interfaces, _) => (
            interfaces.iter().map(|(name, _)| name.clone()).collect(),
            None,
        ),
        PodPlace::HostNetwork => (Vec::new(), Some("it uses the host's network")),
        PodPlace::Nowhere(reason) => (Vec::new(), Some(*reason)),
    };
    let addresses = match &pod.place {
        PodPlace::Interfaces(_, addresses) => addresses.clone(),
        PodPlace::HostNetwork | PodPlace::Nowhere(_) => Vec::new(),
    };
    let reason = reason.map(str::to_owned);
    PodStatus {
        uid,
        namespace,
        name,
        labels,
        namespace_labels,
        workload,
        interfaces,
        addresses,
        reason,
    }
}
