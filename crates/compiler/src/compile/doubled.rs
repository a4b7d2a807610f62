//! Names that a source defines itself, and that the host's headers have, too: these headers are
//! later than the source.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use twinprobe_ebpf_common::finding::name_beside;
use twinprobe_ebpf_common::unit::is_vmlinux;

/// The name of the header that keeps the definitions apart.
pub const NAME: &str = "twinprobe/apart.h";
/// The header that includes others of libbpf, which do not stand alone.
const HELPERS: &str = "bpf/bpf_helpers.h";
const API: &str = "linux/bpf.h";
const TYPES: &str = "vmlinux.h";
const ERROR: &str = ": error: redefinition of ";
const NOTE: &str = ": note: previous definition is here";

/// Returns the text of a header that gives the host's definitions other names, by clang's log;
/// `None` if the log has no such names.
pub fn header(log: &str) -> Option<String> {
    let (mut names, mut headers) = (BTreeSet::new(), BTreeSet::new());
    let mut open = None;
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once(ERROR) {
            open = rest.split('\'').nth(1);
        } else if let Some((place, _)) = line.split_once(NOTE)
            && let Some(name) = open.take()
            && let Some(header) = of_host(place)
        {
            names.insert(name);
            headers.insert(header);
        }
    }
    if names.is_empty() {
        return None;
    }
    // Headers need the types.
    let first = if headers.remove(TYPES) {
        "#include \"vmlinux.h\""
    } else {
        "#include <linux/bpf.h>"
    };
    headers.remove(API);
    let mut text = String::new();
    for name in &names {
        _ = writeln!(text, "#define {name} twinprobe_of_host_{name}");
    }
    _ = writeln!(text, "{first}");
    for header in headers {
        _ = writeln!(text, "#include <{header}>");
    }
    for name in names {
        _ = writeln!(text, "#undef {name}");
    }
    Some(text)
}

/// Returns the name by which sources include a header of the host; `None` for other files.
fn of_host(place: &str) -> Option<&str> {
    let file = place
        .split(':')
        .next()
        .filter(|file| file.starts_with('/'))?;
    if let Some(name) = name_beside(file) {
        // The types of the kernel appear under each name that the source has for them.
        return is_vmlinux(&name).then_some(TYPES);
    }
    let (_, name) = file.rsplit_once("/include/")?;
    Some(if name.starts_with("bpf/") {
        HELPERS
    } else {
        name
    })
}
