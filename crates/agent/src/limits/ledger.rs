//! The shares of the kernel that probes take. A share is reserved before the kernel objects are
//! made, and released when its owner is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use twinprobe_api::{ConfigDocument, DirectionDocument};
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_kernel::Footprint;

use crate::limits::descriptors::Descriptors;
use crate::limits::options::RequestLimits;
use crate::limits::spare::{SpareShare, SpareShares};

/// The limits, and the amounts that are in use.
#[derive(Debug)]
pub struct Ledger {
    pub limits: RequestLimits,
    taken: Mutex<Taken>,
    /// The names of the probes that are being created.
    creating: Mutex<BTreeSet<String>>,
    spares: SpareShares,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    map_bytes: u64,
    programs: u64,
    /// The number of descriptors of maps and programs.
    descriptors: u64,
}

/// A part of the used amounts. A drop releases the part.
#[derive(Debug)]
pub struct Share {
    ledger: Arc<Ledger>,
    taken: Taken,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.ledger.taken.lock();
        all.map_bytes -= self.taken.map_bytes;
        all.programs -= self.taken.programs;
        all.descriptors -= self.taken.descriptors;
    }
}

/// The place of a probe that is being created. A drop releases the place. By then, either the list
/// of probes counts the probe, or the creation has failed.
#[derive(Debug)]
pub struct ProbePlace {
    ledger: Arc<Ledger>,
    name: String,
}

impl Drop for ProbePlace {
    fn drop(&mut self) {
        self.ledger.creating.lock().remove(&self.name);
    }
}

impl Ledger {
    pub fn new(limits: RequestLimits) -> Arc<Self> {
        let (taken, creating, spares) =
            (Mutex::default(), Mutex::default(), SpareShares::default());
        Arc::new(Self {
            limits,
            taken,
            creating,
            spares,
        })
    }

    /// Refuses sources and objects that are too large.
    pub fn check_sources(&self, document: &ConfigDocument) -> Result<(), Rejection> {
        let limit = self.limits.max_source_bytes;
        let mut findings = Vec::new();
        for (name, direction) in [("ingress", &document.ingress), ("egress", &document.egress)] {
            let Some(DirectionDocument {
                source,
                object,
                files,
                ..
            }) = direction
            else {
                continue;
            };
            let beside: usize = files
                .iter()
                .flat_map(|files| files.values())
                .map(String::len)
                .sum();
            for (what, text, beside) in [("source", source, beside), ("object", object, 0)] {
                let bytes = (text.as_ref().map_or(0, String::len) + beside) as u64;
                if bytes > limit {
                    let with = if beside > 0 { " with its files" } else { "" };
                    let message = format!(
                        "the {what}{with} has {bytes} bytes; --max-source-bytes allows {limit}"
                    );
                    findings.push(Finding::config(format!("{name}.{what}"), message));
                }
            }
        }
        if findings.is_empty() {
            Ok(())
        } else {
            Err(findings.into())
        }
    }

    /// Reserves the place of a probe that is about to be created. `probes` are the existing probes.
    pub fn create<T>(
        self: &Arc<Self>,
        name: &str,
        probes: &RwLock<BTreeMap<String, T>>,
    ) -> Result<ProbePlace, Rejection> {
        let mut creating = self.creating.lock();
        let probes = probes.read();
        let others = creating
            .iter()
            .filter(|name| !probes.contains_key(*name))
            .count();
        let (count, limit) = (probes.len() + others, self.limits.max_probes);
        if count >= limit {
            let message = format!(
                "there are {count} probes, and --max-probes allows {limit}: remove one that is not needed"
            );
            return Err(Finding {
                field: None,
                ..Finding::config("", message)
            }
            .into());
        }
        creating.insert(name.to_owned());
        Ok(ProbePlace {
            ledger: Arc::clone(self),
            name: name.to_owned(),
        })
    }

    /// Registers an owner that releases its share if a probe needs more than the limits leave.
    pub fn offer(&self, spare: &Arc<dyn SpareShare>) {
        self.spares.add(spare);
    }

    /// Reserves the share of a probe that is about to be loaded. `replaced` is the share that is
    /// released for it. The findings name every limit that would be exceeded.
    pub fn take(
        self: &Arc<Self>,
        needed: &Footprint,
        replaced: Option<&Share>,
    ) -> Result<Share, Rejection> {
        let taken = self.take_now(needed, replaced);
        if taken.is_err() && self.spares.give_up() {
            self.take_now(needed, replaced)
        } else {
            taken
        }
    }

    fn take_now(
        self: &Arc<Self>,
        needed: &Footprint,
        replaced: Option<&Share>,
    ) -> Result<Share, Rejection> {
        let limits = &self.limits;
        let mut findings = Vec::new();
        let mut refuse = |place: Option<&Finding>, message| {
            let nowhere = || Finding {
                field: None,
                ..Finding::new(Stage::Load, "", "")
            };
            findings.push(Finding {
                message,
                ..place.cloned().unwrap_or_else(nowhere)
            });
        };
        for (field, instructions) in &needed.instructions {
            let limit = limits.max_instructions;
            if *instructions > limit {
                let message = format!(
                    "the program has {instructions} instructions; --max-instructions allows {limit}"
                );
                refuse(Some(&Finding::new(Stage::Load, field, "")), message);
            }
        }
        if needed.maps > limits.max_maps {
            let (maps, limit) = (needed.maps, limits.max_maps);
            let message = format!(
                "the probe has {maps} maps, those of twins counted twice; --max-maps allows {limit}"
            );
            refuse(None, message);
        }
        let largest = match &needed.largest {
            Some((place, map, bytes)) => {
                let field = place.field.as_deref().unwrap_or_default();
                let direction = field.split('.').next().unwrap_or_default();
                format!(
                    "map {map} of {direction} takes the most, {bytes} bytes: lower its max_entries, in the source or in {direction}.max_entries"
                )
            }
            None => "it has no maps".to_owned(),
        };
        let bytes = needed.map_bytes;
        if bytes > limits.max_map_bytes.each {
            let limit = limits.max_map_bytes.each;
            let message = format!(
                "the maps of the probe take {bytes} bytes, those of twins counted twice; --max-map-bytes allows \
                 {limit} for each probe; {largest}"
            );
            refuse(needed.largest.as_ref().map(|(place, ..)| place), message);
        }
        let mut all = self.taken.lock();
        let gone = replaced.map_or(Taken::default(), |share| share.taken);
        let others = all.map_bytes.saturating_sub(gone.map_bytes);
        if bytes > limits.max_map_bytes.all.saturating_sub(others) {
            let limit = limits.max_map_bytes.all;
            let message = format!(
                "the maps of the probe take {bytes} bytes and those of all others {others}; --max-map-bytes \
                 allows {limit} in all; {largest}, or remove another probe"
            );
            refuse(needed.largest.as_ref().map(|(place, ..)| place), message);
        }
        let (programs, others) = (needed.programs, all.programs.saturating_sub(gone.programs));
        if programs > limits.max_programs.saturating_sub(others) {
            let limit = limits.max_programs;
            let message = format!(
                "the probe has {programs} programs, twins counted twice, and all others {others}; --max-programs \
                 allows {limit} in all"
            );
            refuse(None, message);
        }
        let descriptors = needed.maps + needed.programs;
        if let Some(message) = Descriptors::now().refusal(descriptors, all.descriptors) {
            refuse(None, message);
        }
        if !findings.is_empty() {
            return Err(findings.into());
        }
        Ok(self.add(&mut all, needed))
    }

    /// Reserves the share of a stored probe, even beyond the present limits.
    pub fn take_stored(self: &Arc<Self>, needed: &Footprint) -> Share {
        self.add(&mut self.taken.lock(), needed)
    }

    fn add(self: &Arc<Self>, all: &mut Taken, needed: &Footprint) -> Share {
        // A request whose sum overflows was refused before. The limit has not refused a stored
        // probe, but no kernel could hold one of this size.
        let map_bytes = needed.map_bytes.min(u64::MAX - all.map_bytes);
        all.map_bytes += map_bytes;
        all.programs += needed.programs;
        let descriptors = needed.maps + needed.programs;
        all.descriptors += descriptors;
        self.share(Taken {
            map_bytes,
            programs: needed.programs,
            descriptors,
        })
    }

    fn share(self: &Arc<Self>, taken: Taken) -> Share {
        Share {
            ledger: Arc::clone(self),
            taken,
        }
    }
}
