//! TC by netlink, for kernels without TCX: a direct-action filter under the clsact qdisc. Unlike a link, a
//! filter stays when its owner goes; what is needed to find it again is the name of its program's pin.

use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use aya::programs::tc::{self, NlOptions, SchedClassifier, SchedClassifierLink, TcAttachOptions, TcHandle};
use aya::programs::{ProgramError, TcAttachType};

use super::{AttachError, Hook, Target};
use crate::config::Position;
use crate::kernel::sys;

/// Priorities of filters; those who ask for none are put before 49152.
const FIRST: u16 = 1;
const LAST: u16 = 65000;

#[derive(Debug)]
pub struct ClsactFilter {
    interface: String,
    hook: Hook,
    priority: u16,
    handle: TcHandle,
    pin: PathBuf,
}

impl ClsactFilter {
    pub(super) fn attach(
        target: &Target<'_>,
        program: BorrowedFd<'_>,
        pins: &Path,
    ) -> Result<Self, AttachError> {
        let failed = |error| target.failed(error);
        // Another owner may have made the qdisc already, and this is how the kernel says it.
        if let Err(error) = tc::qdisc_add_clsact(target.interface)
            && error_code(&error) != Some(libc::EEXIST)
        {
            return Err(failed(io::Error::other(crate::kernel::loader::with_causes(&error))));
        }
        let (new, mut classifier) = open(program, pins).map_err(failed)?;
        let priority = match target.position {
            Position::First => FIRST,
            Position::Last => LAST,
        };
        let options = TcAttachOptions::Netlink(NlOptions { priority, ..NlOptions::default() });
        let link = classifier
            .attach_with_options(target.interface, attach_type(target.hook), options)
            .and_then(|id| classifier.take_link(id))
            .map_err(|error| failed(other(&error)))?;
        let (priority, handle) = identity(&link).map_err(failed)?;
        // Dropping the link would detach the filter.
        mem::forget(link);
        let pin = pins.join(pin_name(priority, handle));
        std::fs::rename(new, &pin).map_err(failed)?;
        Ok(Self { interface: target.interface.to_owned(), hook: target.hook, priority, handle, pin })
    }

    /// The filter whose pin an earlier daemon has left in `pins`, if there is one.
    pub(super) fn adopt(interface: &str, hook: Hook, pins: &Path) -> io::Result<Option<Self>> {
        for entry in std::fs::read_dir(pins)? {
            let pin = entry?.path();
            let name = pin.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some((priority, handle)) = parse_pin_name(name) {
                return Ok(Some(Self { interface: interface.to_owned(), hook, priority, handle, pin }));
            }
        }
        Ok(None)
    }

    pub(super) fn replace(&self, program: BorrowedFd<'_>, pins: &Path) -> io::Result<()> {
        let (new, mut classifier) = open(program, pins)?;
        let link = classifier
            .attach_to_link(self.link()?)
            .and_then(|id| classifier.take_link(id))
            .map_err(|error| other(&error))?;
        mem::forget(link);
        std::fs::rename(new, &self.pin)
    }

    pub(super) fn detach(self) -> io::Result<()> {
        drop(self.link()?);
        std::fs::remove_file(&self.pin)
    }

    fn link(&self) -> io::Result<SchedClassifierLink> {
        SchedClassifierLink::attached(
            &self.interface,
            attach_type(self.hook),
            self.priority,
            self.handle,
            None,
        )
    }
}

/// aya takes a program from a pin only.
fn open(program: BorrowedFd<'_>, pins: &Path) -> io::Result<(PathBuf, SchedClassifier)> {
    let path = pins.join("clsact_new");
    let _ = std::fs::remove_file(&path);
    sys::obj_pin(program, &path)?;
    let classifier = SchedClassifier::from_pin(&path).map_err(|error| other(&error))?;
    Ok((path, classifier))
}

fn identity(link: &SchedClassifierLink) -> io::Result<(u16, TcHandle)> {
    let error = |error: ProgramError| other(&error);
    Ok((link.priority().map_err(error)?, link.handle().map_err(error)?))
}

const fn attach_type(hook: Hook) -> TcAttachType {
    match hook {
        Hook::TcEgress => TcAttachType::Egress,
        Hook::Xdp | Hook::TcIngress => TcAttachType::Ingress,
    }
}

fn pin_name(priority: u16, handle: TcHandle) -> String {
    format!("clsact_{priority}_{}", u32::from(handle))
}

fn parse_pin_name(name: &str) -> Option<(u16, TcHandle)> {
    let (priority, handle) = name.strip_prefix("clsact_")?.split_once('_')?;
    Some((priority.parse().ok()?, TcHandle::from(handle.parse::<u32>().ok()?)))
}

fn other(error: &ProgramError) -> io::Error {
    error_code(error).map_or_else(
        || io::Error::other(crate::kernel::loader::with_causes(error)),
        io::Error::from_raw_os_error,
    )
}

/// The errno at the end of a chain of causes.
fn error_code(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(code);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_names_its_filter() {
        let name = pin_name(49152, TcHandle::new(1, 2));
        assert_eq!(parse_pin_name(&name), Some((49152, TcHandle::new(1, 2))));
        assert_eq!(parse_pin_name("clsact_new"), None);
        assert_eq!(parse_pin_name("link"), None);
    }
}
