//! The headers that the daemon brings with it, and the view of files in which clang sees them.

use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::{Value, json};

/// The directory of the headers for all sources, as clang sees it. There is no such directory on disk.
const DIRECTORY: &str = "/twinprobe/include";
/// The headers for all sources: the name that sources include, and the text.
const HEADERS: [(&str, &str); 7] = [
    ("twinprobe.h", include_str!("../headers/twinprobe.h")),
    ("twinprobe/flow.h", include_str!("../headers/twinprobe/flow.h")),
    ("twinprobe/maps.h", include_str!("../headers/twinprobe/maps.h")),
    ("twinprobe/numbers.h", include_str!("../headers/twinprobe/numbers.h")),
    ("twinprobe/packet.h", include_str!("../headers/twinprobe/packet.h")),
    ("twinprobe/parse.h", include_str!("../headers/twinprobe/parse.h")),
    ("twinprobe/sampling.h", include_str!("../headers/twinprobe/sampling.h")),
];

/// Files in memory that clang inherits.
pub struct View {
    /// The description of the view, then the headers.
    pub files: Vec<OwnedFd>,
    /// The arguments that show clang the view.
    pub arguments: Vec<String>,
}

impl View {
    /// Makes the view of what the preprocessor sees: the daemon's headers, these directories of the host, and nothing
    /// else. A file that may not be read is then not there, so that nobody can ask for it.
    pub fn new(host: &[PathBuf]) -> io::Result<Self> {
        let mut headers = Vec::new();
        let mut own = Vec::new();
        for (name, text) in HEADERS {
            let file = sealed(name, text.as_bytes())?;
            own.push(json!({ "type": "file", "name": name, "external-contents": path(&file) }));
            headers.push(file);
        }
        let mut roots = vec![json!({ "type": "directory", "name": DIRECTORY, "contents": own })];
        roots.extend(host.iter().filter_map(|path| path.to_str()).map(remap));
        // Messages of clang name the headers by the view.
        let view = json!({
            "version": 0, "case-sensitive": "true", "fallthrough": "false", "use-external-names": "false",
            "roots": roots
        });
        let mut files = vec![sealed("view", view.to_string().as_bytes())?];
        let arguments = ["-ivfsoverlay", &path(&files[0]), "-isystem", DIRECTORY].map(str::to_owned).to_vec();
        files.append(&mut headers);
        Ok(Self { files, arguments })
    }
}

/// Shows a directory of the host under its own name.
fn remap(path: &str) -> Value {
    json!({ "type": "directory-remap", "name": path, "external-contents": path })
}

/// Returns the path by which a process opens a file that it has inherited.
fn path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Makes a file that no directory has, and whose content can't be changed any more.
fn sealed(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(file);
    file.write_all(content)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}
