//! The files that a client sends along with a source, in a directory that only one compilation sees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde_json::{Value, json};
use twinprobe_ebpf_common::finding::BESIDE;

use crate::headers::{OVERLAY, entry, path, sealed};

/// Files in memory for one compilation.
#[derive(Debug, Default)]
pub struct FilesBeside {
    /// The files that clang inherits, the description of the view with them among these.
    pub inherited: Arc<[OwnedFd]>,
    /// The path of this description; `None` without files.
    overlay: Option<String>,
}

impl FilesBeside {
    /// Makes the files, and a view that has them beside everything in `view`.
    pub fn new(view: &Value, files: &BTreeMap<String, String>) -> io::Result<Self> {
        if files.is_empty() {
            return Ok(Self::default());
        }
        let (mut inherited, mut entries) = (Vec::new(), Vec::new());
        for (name, text) in files {
            let file = sealed("beside", text.as_bytes())?;
            entries.push(entry(name, &path(&file)));
            inherited.push(file);
        }
        let mut view = view.clone();
        if let Some(roots) = view["roots"].as_array_mut() {
            roots.push(json!({ "type": "directory", "name": BESIDE, "contents": entries }));
        }
        let description = sealed("view", view.to_string().as_bytes())?;
        let overlay = Some(path(&description));
        inherited.push(description);
        Ok(Self { inherited: inherited.into(), overlay })
    }

    /// Shows clang the view with the files in place of the usual one.
    pub fn show(&self, arguments: &mut Vec<OsString>) {
        let Some(overlay) = &self.overlay else { return };
        let usual = arguments.iter().position(|argument| argument == OVERLAY);
        if let Some(usual) = usual.and_then(|at| arguments.get_mut(at + 1)) {
            *usual = overlay.into();
        }
        // The places where clang looks for names in quotation marks, before it looks for headers.
        arguments.splice(0..0, ["-iquote", BESIDE, "-idirafter", BESIDE].map(OsString::from));
    }
}
