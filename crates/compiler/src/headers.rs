//! The daemon's own headers, and clang's view of files.

use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::{Value, json};
use twinprobe_ebpf_common::finding::BESIDE;

use crate::vmlinux::{self, KernelTypes};

/// The directory of the headers for all sources, in clang's view. The directory does not exist on
/// disk.
const COMMON: &str = "/twinprobe/include";
/// The directory of the headers for sources in the dialect of BCC.
pub const BCC: &str = "/twinprobe/bcc";

/// The headers for all sources: the name that sources include, and the text.
const COMMON_HEADERS: [(&str, &str); 11] = [
    ("gnu/stubs-32.h", include_str!("../headers/stubs-32.h")),
    ("twinprobe.h", include_str!("../headers/twinprobe.h")),
    (
        "twinprobe/flow.h",
        include_str!("../headers/twinprobe/flow.h"),
    ),
    (
        "twinprobe/legacy.h",
        include_str!("../headers/twinprobe/legacy.h"),
    ),
    (
        "twinprobe/maps.h",
        include_str!("../headers/twinprobe/maps.h"),
    ),
    (
        "twinprobe/numbers.h",
        include_str!("../headers/twinprobe/numbers.h"),
    ),
    (
        "twinprobe/packet.h",
        include_str!("../headers/twinprobe/packet.h"),
    ),
    (
        "twinprobe/parse.h",
        include_str!("../headers/twinprobe/parse.h"),
    ),
    (
        "twinprobe/sampling.h",
        include_str!("../headers/twinprobe/sampling.h"),
    ),
    (
        "twinprobe/segments.h",
        include_str!("../headers/twinprobe/segments.h"),
    ),
    (
        "twinprobe/tunnel.h",
        include_str!("../headers/twinprobe/tunnel.h"),
    ),
];
/// The headers of the dialect, and the headers that replace a header of the host.
const BCC_HEADERS: [(&str, &str); 20] = [
    ("bcc/calls.h", include_str!("../headers/bcc/calls.h")),
    (
        "bcc/conventions.h",
        include_str!("../headers/bcc/conventions.h"),
    ),
    ("bcc/dialect.h", include_str!("../headers/bcc/dialect.h")),
    ("bcc/entry.h", include_str!("../headers/bcc/entry.h")),
    ("bcc/offsets.h", include_str!("../headers/bcc/offsets.h")),
    ("bcc/packet.h", include_str!("../headers/bcc/packet.h")),
    ("bcc/proto.h", include_str!("../headers/bcc/proto.h")),
    ("bcc/tables.h", include_str!("../headers/bcc/tables.h")),
    (
        "bcc/unsupported.h",
        include_str!("../headers/bcc/unsupported.h"),
    ),
    ("inttypes.h", INTEGERS),
    ("linux/if_vlan.h", include_str!("../headers/bcc/if_vlan.h")),
    ("linux/ipv6.h", IPV6),
    ("net/ip.h", "#include <linux/ip.h>\n"),
    ("net/ipv6.h", "#include <linux/ipv6.h>\n"),
    (
        "net/sock.h",
        "#include <linux/ip.h>\n#include <linux/ipv6.h>\n",
    ),
    (
        "net/tcp.h",
        "#include <linux/ip.h>\n#include <linux/ipv6.h>\n#include <linux/tcp.h>\n",
    ),
    (
        "net/udp.h",
        "#include <linux/ip.h>\n#include <linux/ipv6.h>\n#include <linux/udp.h>\n",
    ),
    ("stdint.h", INTEGERS),
    ("sys/socket.h", include_str!("../headers/bcc/socket.h")),
    (NONE, include_str!("../headers/bcc/none.h")),
];
const INTEGERS: &str = include_str!("../headers/bcc/stdint.h");
/// The kernel's own header of this name includes those of TCP and UDP.
const IPV6: &str =
    "#pragma once\n#include_next <linux/ipv6.h>\n#include <linux/tcp.h>\n#include <linux/udp.h>\n";
/// The header that stands for every other header in [`NOTHING`].
const NONE: &str = "bcc/helpers.h";
/// Headers of the kernel that sources for BCC include. User space does not have them. The dialect's
/// own header has the parts that probes need.
const NOTHING: [&str; 19] = [
    "asm/page.h",
    "linux/bitops.h",
    "linux/compiler.h",
    "linux/inetdevice.h",
    "linux/init.h",
    "linux/kconfig.h",
    "linux/ktime.h",
    "linux/list.h",
    "linux/log2.h",
    "linux/mm.h",
    "linux/net.h",
    "linux/skbuff.h",
    "linux/slab.h",
    "linux/time64.h",
    "net/inet_sock.h",
    "net/net_namespace.h",
    "net/netns/generic.h",
    "net/tcp_states.h",
    "string.h",
];
/// The directory of the headers beside the types of a kernel, which have the names of the integers
/// already, and which the host's header contradicts.
pub const TYPED: &str = "/twinprobe/typed";
const TYPED_HEADERS: [(&str, &str); 1] = [("stdint.h", include_str!("../headers/typed-stdint.h"))];
/// The last directory of clang's search for headers, and the headers: a host or a project may have
/// the same names.
const LATE: &str = "/twinprobe/late";
const LATE_HEADERS: [(&str, &str); 16] = [
    ("asm/compiler.h", include_str!("../headers/bcc/none.h")),
    ("bpf_elf.h", include_str!("../headers/bpf_elf.h")),
    ("bpf_legacy.h", include_str!("../headers/bpf_legacy.h")),
    ("iproute2/bpf_elf.h", include_str!("../headers/bpf_elf.h")),
    ("linux/compiler.h", include_str!("../headers/bcc/none.h")),
    ("linux/jhash.h", include_str!("../headers/jhash.h")),
    ("linux/kconfig.h", include_str!("../headers/bcc/none.h")),
    ("linux/skbuff.h", include_str!("../headers/bcc/none.h")),
    ("net/ip.h", include_str!("../headers/kernel-ip.h")),
    ("net/ipv6.h", "#include <linux/ipv6.h>\n"),
    (
        "net/sock.h",
        "#include <linux/in.h>\n#include <linux/ip.h>\n#include <linux/ipv6.h>\n#include <net/tcp_states.h>\n",
    ),
    (
        "net/tcp.h",
        "#include <linux/ip.h>\n#include <linux/ipv6.h>\n#include <linux/tcp.h>\n",
    ),
    ("net/tcp_states.h", include_str!("../headers/tcp-states.h")),
    (
        "net/udp.h",
        "#include <linux/ip.h>\n#include <linux/ipv6.h>\n#include <linux/udp.h>\n",
    ),
    ("xdp/prog_dispatcher.h", "#include <xdp/xdp_helpers.h>\n"),
    ("xdp/xdp_helpers.h", include_str!("../headers/libxdp.h")),
];
/// The header that shows that a directory has the kernel's headers.
const LINUX: &str = "linux/bpf.h";
/// The directory of libbpf's headers for programs, in clang's view. Headers for loaders have names
/// that projects also give to their own headers (`bpf.h`).
const LIBBPF: &str = "/twinprobe/libbpf";
const HELPERS: &str = "bpf_helpers.h";
pub const LIBBPF_HEADERS: [&str; 6] = [
    HELPERS,
    "bpf_core_read.h",
    "bpf_endian.h",
    "bpf_helper_defs.h",
    "bpf_tracing.h",
    "usdt.bpf.h",
];

/// Tells whether clang prints the name of a header of the daemon, or of a file beside the source.
pub fn is_own(name: &str) -> bool {
    [COMMON, BCC, LATE, TYPED, BESIDE].iter().any(|directory| {
        name.strip_prefix(directory)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}

/// The argument before the file with the description of a view.
pub const OVERLAY: &str = "-ivfsoverlay";

/// Files in memory that clang inherits.
pub struct HeaderFiles {
    /// The description of the view, then the headers.
    pub files: Vec<OwnedFd>,
    /// The arguments that show clang the view.
    pub arguments: Vec<String>,
    /// The description of the view.
    pub description: Value,
}

impl HeaderFiles {
    /// Makes the preprocessor's view of the file system: the daemon's headers, these directories of
    /// the host, and nothing else. Other files are absent, so a source can't test whether they
    /// exist.
    pub fn new(host: &[PathBuf], types: &KernelTypes) -> io::Result<Self> {
        let mut headers = Vec::new();
        let mut entries = |list: &[(&str, &str)]| -> io::Result<Vec<Value>> {
            let entry = |(name, text): &(&str, &str)| {
                let file = sealed(name, text.as_bytes())?;
                let entry = entry(name, &path(&file));
                headers.push(file);
                Ok(entry)
            };
            list.iter().map(entry).collect()
        };
        let mut common = entries(&COMMON_HEADERS)?;
        let late = entries(&LATE_HEADERS)?;
        let typed = entries(&TYPED_HEADERS)?;
        let mut bcc = entries(&BCC_HEADERS)?;
        if let Some(none) = headers.last().map(path) {
            bcc.extend(NOTHING.map(|name| entry(name, &none)));
        }
        let types = types.file()?;
        common.push(entry(vmlinux::NAME, &path(&types)));
        headers.push(types);
        if let Some(uapi) = uapi(host) {
            bcc.push(uapi.clone());
            common.push(uapi);
        }
        let mut roots = vec![
            json!({ "type": "directory", "name": COMMON, "contents": common }),
            json!({ "type": "directory", "name": BCC, "contents": bcc }),
            json!({ "type": "directory", "name": LATE, "contents": late }),
            json!({ "type": "directory", "name": TYPED, "contents": typed }),
        ];
        roots.extend(host.iter().filter_map(|path| path.to_str()).map(remap));
        // Sources with a copy of libbpf's headers include these without their folder.
        let libbpf = libbpf(host);
        let after: &[&str] = match &libbpf {
            Some(_) => &[LIBBPF, LATE],
            None => &[LATE],
        };
        roots.extend(libbpf);
        // Messages of clang name the headers by the view.
        let view = json!({
            "version": 0, "case-sensitive": "true", "fallthrough": "false", "use-external-names": "false",
            "roots": roots
        });
        let mut files = vec![sealed("view", view.to_string().as_bytes())?];
        let mut arguments = [OVERLAY, &path(&files[0]), "-isystem", COMMON]
            .map(str::to_owned)
            .to_vec();
        arguments.extend(
            after
                .iter()
                .flat_map(|folder| ["-idirafter", folder].map(str::to_owned)),
        );
        files.append(&mut headers);
        Ok(Self {
            files,
            arguments,
            description: view,
        })
    }
}

/// Shows the kernel's headers for user space in a directory of their own; `None` if the host has
/// none. BCC, and the kernel's own samples, compile against the sources of the kernel, which have
/// such a directory.
fn uapi(host: &[PathBuf]) -> Option<Value> {
    let linux = host
        .iter()
        .find(|path| path.join(LINUX).exists())
        .and_then(|path| path.to_str())?;
    let folders = ["asm-generic", "linux"].map(|name| {
        json!({ "type": "directory-remap", "name": name, "external-contents": format!("{linux}/{name}") })
    });
    Some(json!({ "type": "directory", "name": "uapi", "contents": folders }))
}

/// Shows libbpf's headers for programs in a directory of their own; `None` if the host has none.
fn libbpf(host: &[PathBuf]) -> Option<Value> {
    let directory = host
        .iter()
        .map(|path| path.join("bpf"))
        .find(|path| path.join(HELPERS).exists())?;
    let there = LIBBPF_HEADERS
        .into_iter()
        .filter(|name| directory.join(name).exists());
    let contents: Vec<Value> = there
        .map(|name| {
            // Messages, and the stamps of an object's input files, contain the name of the real
            // file.
            json!({ "type": "file", "name": name, "external-contents": directory.join(name), "use-external-name": true })
        })
        .collect();
    Some(json!({ "type": "directory", "name": LIBBPF, "contents": contents }))
}

/// Returns an entry that shows a file under this name.
pub fn entry(name: &str, external: &str) -> Value {
    json!({ "type": "file", "name": name, "external-contents": external })
}

/// Shows a directory of the host under its own name.
fn remap(path: &str) -> Value {
    json!({ "type": "directory-remap", "name": path, "external-contents": path })
}

/// Returns the path for a process to open an inherited file.
pub fn path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Makes a file outside of all directories, whose content can't change any more.
pub fn sealed(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(file);
    file.write_all(content)?;
    fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file.into())
}
