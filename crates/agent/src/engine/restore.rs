//! After a start: what an earlier daemon left running is taken over, and what does not run any more is deployed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::deploy::{hook, loaded_direction, requests};
use super::interfaces::{Wanted, refused, wanted};
use super::placement::Pending;
use super::{Engine, EngineError, Probe, describe};
use crate::config::{ConfigDocument, ProbeConfig};
use crate::kernel::Attached;
use crate::report::Finding;
use crate::store::{Store, StoreError, StoredProbe};

/// A deployment of an earlier daemon.
pub struct Adopted {
    pub attached: Attached,
    pub pending: Vec<Pending>,
    pub warnings: Vec<Finding>,
}

impl Engine {
    /// Brings what runs to what the state directory says. What can't be deployed now stays listed, with the reason.
    pub async fn restore(self: &Arc<Self>) -> Result<(), StoreError> {
        let stored = self.store.load()?;
        for (_, stored) in &stored {
            if let Ok(StoredProbe { running: Some(running), .. }) = stored {
                self.kernel.skip_serials(running.deployment.serial);
            }
        }
        let mut kept = Vec::new();
        let mut fresh = Vec::new();
        for (name, stored) in stored {
            let stored = match stored {
                Ok(stored) => stored,
                Err(reason) => {
                    tracing::error!(probe = name, reason, "a stored probe can't be read");
                    let config = ConfigDocument::default();
                    let nothing = StoredProbe { revision: 0, created: String::new(), config, running: None };
                    self.insert(Arc::new(Probe::failed(&name, nothing, reason, self.windows.of(&name))));
                    continue;
                }
            };
            match self.adopt(&name, &stored) {
                Ok(probe) => {
                    tracing::info!(probe = name, "taken over as it runs");
                    kept.extend(stored.running.iter().map(|running| running.deployment.serial));
                    self.insert(Arc::new(probe));
                }
                Err(reason) => {
                    tracing::info!(probe = name, reason, "does not run any more, it is deployed anew");
                    fresh.push((name, stored));
                }
            }
        }
        self.kernel.settle(&kept);
        for (name, stored) in fresh {
            if let Err(error) = self.deploy(&name, stored.config.clone(), Some(stored.clone())).await {
                let reason = describe(&error);
                tracing::error!(probe = name, reason, "a stored probe could not be deployed");
                self.insert(Arc::new(Probe::failed(&name, stored, reason, self.windows.of(&name))));
            }
        }
        self.sweep();
        self.watch();
        Ok(())
    }

    fn adopt(&self, name: &str, stored: &StoredProbe) -> Result<Probe, String> {
        let running = stored.running.as_ref().ok_or("it was not running")?;
        let config = ProbeConfig::validate(name, &stored.config).map_err(|error| describe(&error.into()))?;
        let mut directions = Vec::new();
        for (direction, config) in config.directions() {
            let elf = object(&self.store, &running.objects, direction.name())?;
            let (hook, _) = hook(config);
            let twins =
                self.kernel.open_twins(&elf, hook, &requests(direction, config), &running.deployment)?;
            directions.push(loaded_direction(config, twins));
        }
        let warnings = directions.iter().flat_map(|loaded| {
            let source = format!("{}.source", loaded.hook.direction());
            let finding = move |warning: &String| Finding::new(crate::report::Stage::Load, &source, warning);
            loaded.twins.warnings.iter().map(finding).collect::<Vec<_>>()
        });
        let warnings = warnings.collect();
        let Wanted { interfaces, mut pending } =
            wanted(&config, false).map_err(|rejection| describe(&rejection.into()))?;
        let (attached, failed) =
            Attached::adopt(&self.kernel, running.deployment.clone(), directions, &interfaces)?;
        pending.extend(refused(failed));
        Probe::adopt(
            name,
            stored.clone(),
            config,
            Adopted { attached, pending, warnings },
            self.kept(name),
            &self.events,
        )
        .map_err(|error: EngineError| describe(&error))
    }
}

fn object(store: &Store, objects: &BTreeMap<String, String>, direction: &str) -> Result<Vec<u8>, String> {
    let digest = objects.get(direction).ok_or_else(|| format!("the {direction} object is not recorded"))?;
    store.object(digest)
}
