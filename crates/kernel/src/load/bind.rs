//! Objects made ready for this kernel: references to its types are resolved, and references to maps are bound.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;

use aya_obj::{Function, Object};

use crate::plan::object::{ObjectError, ProbeObject, guarded};

/// An object whose references to the kernel's types (CO-RE) are resolved.
pub struct Bindable<'a> {
    object: Cow<'a, Object>,
    entry: &'a str,
}

impl<'a> Bindable<'a> {
    pub fn new(object: &'a ProbeObject) -> Result<Self, ObjectError> {
        let entry = &object.defined.entry;
        let mut object = Cow::Borrowed(&object.program);
        if object.has_btf_relocations() {
            let kernel = aya_obj::btf::Btf::from_sys_fs()?;
            guarded(|| object.to_mut().relocate_btf(&kernel))??;
        }
        Ok(Self { object, entry })
    }

    /// The entry program with every map reference bound to the descriptor that `fds` names.
    pub fn bind(&self, fds: &HashMap<&str, RawFd>) -> Result<Function, ObjectError> {
        let mut object = self.object.clone().into_owned();
        let maps = std::mem::take(&mut object.maps);
        let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let bound: Vec<_> = maps
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), *fds.get(name.as_str())?, map)))
            .collect();
        guarded(|| object.relocate_maps(bound.into_iter(), &text))??;
        guarded(|| object.relocate_calls(&text))??;
        object.sanitize_functions(aya::features());
        let key = object.programs[self.entry].function_key();
        object.functions.remove(&key).ok_or(ObjectError::Panic)
    }
}
