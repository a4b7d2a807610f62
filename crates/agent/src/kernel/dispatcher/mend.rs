//! Attachments that somebody removes are made again, for all whom the dispatcher calls.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use jiff::Timestamp;

use super::chain::{Dispatcher, Entry, Owner};
use super::{Dispatchers, Place};
use crate::config::XdpMode;
use crate::kernel::hook::AttachError;
use crate::kernel::loader::with_causes;
use crate::kernel::rtnl::Socket;

/// What has become of an attachment since this daemon looks after it.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// How it is attached; `None`: it is not.
    pub mode: Option<&'static str>,
    /// Why it is not, and since when.
    pub trouble: Option<(String, Timestamp)>,
    /// How often it was made again after somebody had removed it, and when last.
    pub repairs: u64,
    pub repaired: Option<Timestamp>,
}

/// What packets at a place meet.
enum Standing {
    Ours,
    /// Another program behind our link.
    Another,
    Nothing,
}

impl Dispatchers {
    /// Makes every attachment again that somebody has removed, and removes what could not be removed before.
    pub fn look(&self) {
        if !self.settled.load(Ordering::Relaxed) {
            return;
        }
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, dispatcher) in by_place.values_mut() {
            self.mend(dispatcher, place, false);
        }
        drop(by_place);
        self.remove_left();
    }

    /// As [`Self::look`], where a probe is to stay and the interface `was_gone` or not. False: the probe is not called
    /// there.
    pub fn keep(&self, place: &Place, owner: Owner, was_gone: bool) -> bool {
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((known, dispatcher)) = by_place.get_mut(&place.key()) else { return false };
        if !dispatcher.entries.iter().any(|entry| entry.owner == owner) {
            return false;
        }
        // A name can change while the interface stays.
        known.clone_from(place);
        self.mend(dispatcher, place, was_gone);
        true
    }

    fn mend(&self, dispatcher: &mut Dispatcher, place: &Place, was_gone: bool) {
        // An earlier daemon's, that is about to be settled.
        if dispatcher.adopted {
            return;
        }
        let (interface, hook) = (&place.interface, place.hook.name());
        let mended = match standing(dispatcher, place, was_gone) {
            Ok(Standing::Ours) => {
                dispatcher.is_well();
                return;
            }
            Ok(Standing::Another) => self.switch(dispatcher, place, dispatcher.entries.clone()),
            // Whoever tells that interfaces have gone is about to tell it.
            Ok(Standing::Nothing) if !was_gone && is_gone(place) => return,
            Ok(Standing::Nothing) => self.attach_again(dispatcher, place),
            Err(error) => {
                tracing::debug!(interface, hook, %error, "it can't be told whether a probe is attached");
                return;
            }
        };
        match mended {
            Ok(()) => {
                dispatcher.is_well();
                if !was_gone {
                    let mut health = dispatcher.health();
                    health.repairs += 1;
                    health.repaired = Some(Timestamp::now());
                    let times = health.repairs;
                    tracing::warn!(
                        interface,
                        hook,
                        times,
                        "somebody removed an attachment; it was made again"
                    );
                }
            }
            Err(error) => {
                let mut health = dispatcher.health();
                health.mode = None;
                let reason = with_causes(&error);
                let since = match &health.trouble {
                    Some((known, since)) if *known == reason => *since,
                    known => {
                        tracing::warn!(
                            interface,
                            hook,
                            reason,
                            "an attachment was removed and can't be made again"
                        );
                        known.as_ref().map_or_else(Timestamp::now, |(_, since)| *since)
                    }
                };
                health.trouble = Some((reason, since));
            }
        }
    }

    fn attach_again(&self, dispatcher: &mut Dispatcher, place: &Place) -> Result<(), AttachError> {
        if let Err(error) = dispatcher.let_go() {
            tracing::warn!(pins = %dispatcher.pins.display(), %error, "pins could not be removed");
        }
        let entries = dispatcher.entries.clone();
        self.attach(dispatcher, place, xdp_mode(&entries), entries)
    }
}

fn standing(dispatcher: &Dispatcher, place: &Place, was_gone: bool) -> io::Result<Standing> {
    let Some(attachment) = &dispatcher.attachment else { return Ok(Standing::Nothing) };
    let Some(program) = attachment.program_at(place.ifindex)? else { return Ok(Standing::Nothing) };
    if was_gone && !place.netns.run(|| attachment.is_found(place.ifindex, place.hook))?? {
        return Ok(Standing::Nothing);
    }
    // What could not be told when it was attached is not known to be wrong.
    let is_ours = dispatcher.program.is_none_or(|ours| ours == program);
    Ok(if is_ours { Standing::Ours } else { Standing::Another })
}

/// Whether the interface is known not to be there any more.
fn is_gone(place: &Place) -> bool {
    let device = place.netns.run(|| Socket::here()?.device(place.ifindex));
    matches!(device, Ok(Ok(None)))
}

/// What is asked for by those that ask for anything: they agree.
fn xdp_mode(entries: &[Entry]) -> XdpMode {
    entries.iter().map(|entry| entry.xdp_mode).find(|mode| *mode != XdpMode::Auto).unwrap_or(XdpMode::Auto)
}
