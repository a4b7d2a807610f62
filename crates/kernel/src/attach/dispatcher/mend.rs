//! Repairs of attachments that somebody has removed, for all probes that the dispatcher calls.

use std::io;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::XdpMode;

use crate::attach::dispatcher::chain::Dispatcher;
use crate::attach::dispatcher::dispatchers::Dispatchers;
use crate::attach::dispatcher::entry::DispatcherEntry;
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::rank::DeploymentId;
use crate::net::rtnl::socket::NetlinkSocket;

/// The program that packets meet at a place.
enum PlaceProgram {
    Ours,
    /// The daemon's link runs another program.
    Another,
    Nothing,
}

impl Dispatchers {
    /// Restores every attachment that somebody has removed, and repeats the removals that were not
    /// possible before.
    pub fn look(&self) {
        if !self.settled.load(Ordering::Relaxed) {
            return;
        }
        let mut by_place = self.by_place.lock();
        for (place, dispatcher) in by_place.values_mut() {
            self.mend(dispatcher, place, false);
        }
        drop(by_place);
        self.remove_left();
    }

    /// Does the same as [`Self::look`] at `place`, where a probe must remain. `was_gone` is true if
    /// the interface may have disappeared since the last check. Returns false if the dispatcher at
    /// `place` does not call the probe.
    pub fn keep(&self, place: &HookPoint, owner: DeploymentId, was_gone: bool) -> bool {
        let mut by_place = self.by_place.lock();
        let Some((known, dispatcher)) = by_place.get_mut(&place.key()) else {
            return false;
        };
        if !dispatcher.entries.iter().any(|entry| entry.owner == owner) {
            return false;
        }
        // A name can change while the interface stays.
        known.clone_from(place);
        self.mend(dispatcher, place, was_gone);
        true
    }

    fn mend(&self, dispatcher: &mut Dispatcher, place: &HookPoint, was_gone: bool) {
        // An adopted dispatcher is about to be settled.
        if dispatcher.adopted {
            return;
        }
        let (interface, hook) = (&place.interface, place.hook.name());
        if dispatcher.is_stale
            && let Err(error) = self.switch(dispatcher, place, dispatcher.entries.clone())
        {
            tracing::debug!(interface, hook, %error, "the kernel refuses a dispatcher's next program again");
        }
        let standing = standing(dispatcher, place, was_gone);
        let is_replaced = matches!(standing, Ok(PlaceProgram::Another));
        let mended = match standing {
            Ok(PlaceProgram::Ours) => {
                dispatcher.is_well();
                return;
            }
            Ok(PlaceProgram::Another) => self.switch(dispatcher, place, dispatcher.entries.clone()),
            // The watch of the interfaces is about to report that the interface was removed.
            Ok(PlaceProgram::Nothing) if !was_gone && is_gone(place) => return,
            Ok(PlaceProgram::Nothing) => self.attach_again(dispatcher, place),
            Err(error) => {
                tracing::debug!(interface, hook, %error, "the state of an attachment can't be read");
                return;
            }
        };
        match mended {
            Ok(()) => {
                dispatcher.is_well();
                if !was_gone {
                    let mut health = dispatcher.health.lock();
                    health.repairs += 1;
                    health.repaired = Some(Timestamp::now());
                    let times = health.repairs;
                    let message = match is_replaced {
                        true => "somebody replaced the program of an attachment; it was put back",
                        false => "somebody removed an attachment; it was made again",
                    };
                    tracing::warn!(interface, hook, times, message);
                }
            }
            Err(error) => {
                let mut health = dispatcher.health.lock();
                health.mode = None;
                let reason = with_causes(&error);
                let since = match &health.failure {
                    Some((known, since)) if *known == reason => *since,
                    known => {
                        let message = match is_replaced {
                            true => {
                                "the program of an attachment was replaced and can't be put back"
                            }
                            false => "an attachment was removed and can't be made again",
                        };
                        tracing::warn!(interface, hook, reason, message);
                        known
                            .as_ref()
                            .map_or_else(Timestamp::now, |(_, since)| *since)
                    }
                };
                health.failure = Some((reason, since));
            }
        }
    }

    fn attach_again(
        &self,
        dispatcher: &mut Dispatcher,
        place: &HookPoint,
    ) -> Result<(), AttachError> {
        dispatcher.let_go();
        let entries = dispatcher.entries.clone();
        self.attach(dispatcher, place, xdp_mode(&entries), entries)
    }
}

fn standing(
    dispatcher: &Dispatcher,
    place: &HookPoint,
    was_gone: bool,
) -> io::Result<PlaceProgram> {
    let Some(attachment) = &dispatcher.attachment else {
        return Ok(PlaceProgram::Nothing);
    };
    let Some(program) = attachment.program_at(place.ifindex)? else {
        return Ok(PlaceProgram::Nothing);
    };
    if was_gone
        && !place
            .netns
            .run(|| attachment.is_found(place.ifindex, place.hook))??
    {
        return Ok(PlaceProgram::Nothing);
    }
    // If the id could not be read at the attachment, another id does not prove that another program
    // is there.
    let is_ours = dispatcher.program.is_none_or(|ours| ours == program);
    Ok(if is_ours {
        PlaceProgram::Ours
    } else {
        PlaceProgram::Another
    })
}

fn is_gone(place: &HookPoint) -> bool {
    let device = place
        .netns
        .run(|| NetlinkSocket::here()?.device(place.ifindex));
    matches!(device, Ok(Ok(None)))
}

/// Returns the XDP mode that the probes ask for. All probes that ask for a mode ask for the same
/// mode.
fn xdp_mode(entries: &[DispatcherEntry]) -> XdpMode {
    entries
        .iter()
        .map(|entry| entry.xdp_mode)
        .find(|mode| *mode != XdpMode::Auto)
        .unwrap_or(XdpMode::Auto)
}
