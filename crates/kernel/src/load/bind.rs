//! The preparation of objects for this kernel: references to its types are resolved, and references to maps are bound.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;

use aya_obj::{Function, Object};

use crate::plan::object::{ObjectError, ProbeObject, guarded};

/// Returns the object with its references to the kernel's types (CO-RE) resolved.
pub fn resolve(object: &ProbeObject) -> Result<Cow<'_, Object>, ObjectError> {
    let mut object = Cow::Borrowed(&object.program);
    if object.has_btf_relocations() {
        let kernel = aya_obj::btf::Btf::from_sys_fs()?;
        guarded(|| object.to_mut().relocate_btf(&kernel))??;
    }
    Ok(object)
}

/// Returns the program `entry` with every map reference bound to the map's descriptor in `fds`.
pub fn bind(mut object: Object, entry: &str, fds: &HashMap<&str, RawFd>) -> Result<Function, ObjectError> {
    let maps = std::mem::take(&mut object.maps);
    let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let bound: Vec<_> =
        maps.iter().filter_map(|(name, map)| Some((name.as_str(), *fds.get(name.as_str())?, map))).collect();
    guarded(|| object.relocate_maps(bound.into_iter(), &text))??;
    guarded(|| object.relocate_calls(&text))??;
    object.sanitize_functions(aya::features());
    let key = object.programs[entry].function_key();
    object.functions.remove(&key).ok_or(ObjectError::Panic)
}
