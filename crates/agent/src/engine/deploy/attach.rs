//! The step from loaded to running: a probe is attached anew, replaces another one, or is adopted as it runs.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_client::ConfigDocument;
use twinprobe_ebpf_common::TableLayout;
use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_kernel::clock::Moment;
use twinprobe_kernel::{Deployable, Identity, Loss, Replaced, crash};
use twinprobe_windows::Limits;

use crate::config::probe::ProbeConfig;
use crate::engine::deploy::history::{Before, History};
use crate::engine::deploy::load::prepare;
use crate::engine::deploy::loaded::LoadedProbe;
use crate::engine::deploy::restore::Adopted;
use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::events::probe_events::ProbeEvents;
use crate::engine::placement::wanted::{Wanted, refused, wanted};
use crate::engine::probe::probe::{Probe, State};
use crate::engine::probe::running::{Kept, Running};
use crate::engine::probe::start::Start;
use crate::engine::probe::status::Shown;
use crate::engine::window::base::begin;
use crate::limits::ledger::Share;
use crate::store::record::StoredProbe;

impl Probe {
    /// Attaches a loaded probe, in the place of `old` if `old` runs, and makes the new probe the stored one.
    pub fn deploy(
        engine: &Engine,
        config: ProbeConfig,
        document: ConfigDocument,
        mut loaded: LoadedProbe,
        old: Option<&Self>,
        history: History,
    ) -> Result<Self, EngineError> {
        // The interfaces are listed no earlier: interfaces that appear from now on are reported once this change is
        // done.
        let Wanted { interfaces, mut pending, unlisted } = wanted(&config, loaded.first)?;
        let mut old_state = old.map(Self::lock);
        let mut warnings = Vec::new();
        if let Some(State::Running(running)) = old_state.as_deref_mut() {
            running.finish()?;
            warnings = running.close_before(&loaded.metrics, &loaded.directions)?;
        }
        let running = match old_state.as_deref() {
            Some(State::Running(running)) => Some(&**running),
            _ => None,
        };
        let replaces = match old_state.as_deref() {
            Some(State::Running(running)) => Replaced::Attached(running.attached()),
            Some(State::Failed { held: Some(held), .. }) => Replaced::Held(held),
            _ => Replaced::Nothing,
        };
        if let Some(old) = running {
            loaded.follow(&engine.kernel, old)?;
        }
        let mut readers = std::mem::take(&mut loaded.metrics);
        let events = ProbeEvents::open(&config, &loaded.directions, &engine.events)?;
        let name = config.name().to_owned();
        let windows = engine.windows.of(&name);
        let (first, order) = (windows.last_seq() + 1, old.and_then(|old| old.order));
        let identity = Identity { probe: &name, netns: config.netns() };
        let more_known = |direction: &'static str, map: &str, layout: &TableLayout, rows| match running {
            Some(old) => old.with_more(direction, map, layout, rows),
            None => rows,
        };
        let (kernel, directions, attached) = (&engine.kernel, loaded.directions, replaces.attached());
        let deployable =
            Deployable::new(&kernel.host, identity, directions, attached, first, order, &more_known)?;
        warnings.extend(deployable.losses().iter().map(warning));
        let serial = deployable.record().serial;
        let kept = engine.kept(&name);
        let begun =
            begin(&mut readers, &deployable, running, history.before, history.replaces, &windows, &name);
        let start = match begun {
            Ok(start) => start,
            Err(error) => {
                deployable.discard();
                return Err(error.into());
            }
        };
        crash::point("saved");
        let prepared = prepare(&engine.store, &name, history, document, &loaded.objects, &deployable);
        let (stored, commit) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                deployable.discard();
                windows.forget_baseline(serial);
                return Err(error.into());
            }
        };
        crash::point("prepared");
        let attached = deployable.attach(&interfaces, replaces);
        let (attached, failed) = attached.inspect_err(|_| windows.forget_baseline(serial))?;
        pending.extend(refused(failed));
        // The probe's file decides which deployment runs after a crash: before the commit the old one, after it the new
        // one.
        crash::point("switched");
        if let Err(error) = commit.commit() {
            attached.undo(replaces);
            windows.forget_baseline(serial);
            return Err(error.into());
        }
        crash::point("committed");
        windows.set_limits(limits(&config));
        if replaces.attached().is_none() {
            attached.epoch.set_opened(Moment::now());
        }
        let mut running = Running::new(config, attached, readers, start, kept);
        match old_state.as_deref_mut().map(|state| std::mem::replace(state, State::Gone)) {
            Some(State::Running(old)) => warnings.extend(running.succeed(*old).iter().map(warning)),
            state => {
                running.resume();
                if let Some(State::Failed { held: Some(held), .. }) = state {
                    held.retire(running.attached());
                }
            }
        }
        if let Some(old) = old {
            old.close_events();
        }
        running.set_pending(pending, unlisted);
        warnings.splice(0..0, loaded.warnings);
        Ok(Self::running(stored, warnings, events, running, loaded.share))
    }

    /// Creates the probe that an earlier daemon deployed and that still runs. No window of the probe is closed before
    /// [`Self::resume`].
    pub fn adopt(stored: StoredProbe, config: ProbeConfig, adopted: Adopted, kept: Kept) -> Self {
        let Adopted { attached, readers, events, pending, unlisted, warnings, share } = adopted;
        kept.windows.set_limits(limits(&config));
        let start = Start::Awaited(Before(Some(attached.record.serial)));
        let mut running = Running::new(config, attached, readers, start, kept);
        running.set_pending(pending, unlisted);
        Self::running(stored, warnings, events, running, share)
    }

    /// Goes on with the windows of a probe that was adopted, once the dispatchers call the right programs.
    pub fn resume(&self) {
        if let State::Running(running) = &mut *self.lock() {
            running.resume();
            // The reason for a failure has been logged; the next reading tries again.
            let _ = running.finish_window();
            self.shown().set_trouble(running.trouble());
        }
    }

    fn running(
        stored: StoredProbe,
        warnings: Vec<Finding>,
        events: ProbeEvents,
        running: Running,
        share: Share,
    ) -> Self {
        let config = running.config();
        Self {
            name: config.name().to_owned(),
            order: stored.running.as_ref().map(|running| running.deployment.order),
            stored,
            warnings,
            namespace: Some(config.netns().map(Path::to_owned)),
            events: Some(events),
            windows: running.windows(),
            share: Some(share),
            turn: Arc::default(),
            skipped: running.skipped(),
            sums: running.sums(),
            shown: Mutex::new(Shown::of(&running)),
            state: Mutex::new(State::Running(Box::new(running))),
        }
    }
}

/// Returns the limits of retained windows. A probe without a `window` setting has no collectors: a window that a client
/// has taken counts as acknowledged.
fn limits(config: &ProbeConfig) -> Limits {
    let window = config.window().cloned().unwrap_or_default();
    Limits {
        retain: window.retain(),
        bytes: window.retain_bytes(),
        collectors: window.collectors().to_vec(),
        taken_counts: config.window().is_none(),
    }
}

fn warning((direction, message): &Loss) -> Finding {
    Finding::new(Stage::Load, format!("{direction}.source"), message)
}
