//! The files that a client sends along with a source, in a directory that only one compilation
//! sees.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde_json::{Value, json};
use twinprobe_ebpf_common::finding::{BESIDE, INNER};
use twinprobe_ebpf_common::unit::{Unit, included, inside_of, is_vmlinux};

use crate::headers::{LIBBPF_HEADERS, OVERLAY, entry, path, sealed};
use crate::vmlinux;

/// The number of folders that a name may leave, as in `#include "../../common/sizes.h"`.
const ABOVE: usize = 4;
/// The folder of libbpf's headers on the host.
const OF_HOST: &str = "bpf";
/// The header of the kernel's API for programs.
const API: &str = "linux/bpf.h";

/// Files in memory for one compilation.
#[derive(Debug, Default)]
pub struct FilesBeside {
    /// The files that clang inherits, including the description of the view.
    pub inherited: Arc<[OwnedFd]>,
    /// The path of this description; `None` without files.
    overlay: Option<String>,
}

impl FilesBeside {
    /// Makes the files of a unit, and a view with these files in addition to `view`. The types of
    /// the kernel appear under each of the unit's names for them. `own` is the name and the text of
    /// one more file.
    pub fn new(view: &Value, unit: &Unit<'_>, own: Option<(&str, &str)>) -> io::Result<Self> {
        let texts = || unit.files.values().map(String::as_str).chain([unit.source]);
        // A file of all types conflicts with the API's own definitions: there the name is that of a
        // file with a few types.
        let is_own = texts().flat_map(included).any(|name| name == API);
        let types: BTreeSet<&str> = texts()
            .flat_map(included)
            .filter(|name| *name != vmlinux::NAME)
            .map(inside_of)
            .filter(|name| !is_own && is_vmlinux(name) && !unit.files.contains_key(*name))
            .collect();
        let helpers: BTreeSet<&str> = texts()
            .flat_map(included)
            .filter(|name| of_libbpf(name).is_some())
            .map(inside_of)
            .filter(|name| !unit.files.contains_key(*name))
            .collect();
        if unit.files.is_empty() && types.is_empty() && helpers.is_empty() && own.is_none() {
            return Ok(Self::default());
        }
        let (mut inherited, mut entries) = (Vec::new(), Vec::new());
        let file = file_of(view, vmlinux::NAME);
        entries.extend(
            types
                .into_iter()
                .filter_map(|name| Some(entry(name, file.as_deref()?))),
        );
        let of_host = helpers.into_iter().map(|name| {
            let header = of_libbpf(name).unwrap_or(name);
            (name, format!("#include <bpf/{header}>\n"))
        });
        let files = unit
            .files
            .iter()
            .map(|(name, text)| (name.as_str(), text.clone()));
        let own = own.map(|(name, text)| (name, text.to_owned()));
        for (name, text) in files.chain(of_host).chain(own) {
            let file = sealed("beside", text.as_bytes())?;
            entries.push(entry(name, &path(&file)));
            inherited.push(file);
        }
        // A name that leaves the source's folder means a file in the folder: programs share headers
        // with others beside them.
        let inner = [INNER; ABOVE].join("/");
        entries.push(json!({ "type": "directory", "name": inner, "contents": [] }));
        let view = with_entries(view, unit, &entries);
        let description = sealed("view", view.to_string().as_bytes())?;
        let overlay = Some(path(&description));
        inherited.push(description);
        Ok(Self {
            inherited: inherited.into(),
            overlay,
        })
    }

    /// Shows clang the view with the files in place of the usual one.
    pub fn show(&self, arguments: &mut Vec<OsString>) {
        let Some(overlay) = &self.overlay else { return };
        let usual = arguments.iter().position(|argument| argument == OVERLAY);
        if let Some(usual) = usual.and_then(|at| arguments.get_mut(at + 1)) {
            *usual = overlay.into();
        }
        // Returns the directories in which clang looks for names in quotation marks, before it
        // looks for headers.
        let inner =
            (0..=ABOVE).map(|depth| format!("{BESIDE}{}", format!("/{INNER}").repeat(depth)));
        let quoted = inner.flat_map(|folder| ["-iquote".to_owned(), folder]);
        let bracketed = ["-idirafter", BESIDE].map(str::to_owned);
        arguments.splice(0..0, quoted.chain(bracketed).map(OsString::from));
    }
}

/// Returns the view with a directory of these entries in addition.
fn with_entries(view: &Value, unit: &Unit<'_>, entries: &[Value]) -> Value {
    let mut view = view.clone();
    // A file of a few types that the project itself has under that name comes in place of all
    // types, also in angle brackets.
    if unit.files.contains_key(vmlinux::NAME)
        && let Some(common) = view["roots"][0]["contents"].as_array_mut()
    {
        common.retain(|entry| entry["name"] != vmlinux::NAME);
    }
    if let Some(roots) = view["roots"].as_array_mut() {
        roots.push(json!({ "type": "directory", "name": BESIDE, "contents": entries }));
    }
    view
}

/// Returns the name of a header of libbpf for programs that a project has in a folder of its own,
/// as a submodule or as a copy.
fn of_libbpf(name: &str) -> Option<&str> {
    let (folder, header) = name.rsplit_once('/')?;
    (folder != OF_HOST && LIBBPF_HEADERS.contains(&header)).then_some(header)
}

/// Returns the file of this name in the first directory of a view.
fn file_of(view: &Value, name: &str) -> Option<String> {
    let entries = view["roots"][0]["contents"].as_array()?;
    let entry = entries.iter().find(|entry| entry["name"] == name)?;
    entry["external-contents"].as_str().map(str::to_owned)
}
