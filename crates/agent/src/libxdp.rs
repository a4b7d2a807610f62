//! The program that `xdp-loader` loads, so that libxdp's dispatcher calls the daemon's dispatcher.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::ensure;
use twinprobe_compiler::Toolchain;
use twinprobe_ebpf_common::hook::{Hook, Verdict};
use twinprobe_ebpf_common::unit::{Calls, Dialect, Unit};
use twinprobe_kernel::XdpLoader;

/// A small program: libxdp lets packets that pass go on to its next program. Its section makes
/// drivers refuse packets of several buffers, which not every probe sees as a whole.
const SOURCE: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
    __uint(pinning, LIBBPF_PIN_BY_NAME);
} tp_libxdp SEC(".maps");

SEC("xdp")
int twinprobe(struct xdp_md *packet)
{
    bpf_tail_call(packet, &tp_libxdp, 0);
    return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
"#;

#[derive(Debug, clap::Args)]
pub struct LibxdpOptions {
    /// The xdp-loader by which probes join dispatchers of libxdp; needs CAP_SYS_ADMIN
    #[arg(long, value_name = "FILE")]
    pub xdp_loader: Option<PathBuf>,
}

impl LibxdpOptions {
    /// Makes the daemon join dispatchers of libxdp, if the operator wants it.
    pub async fn apply(self, toolchain: &Toolchain) -> anyhow::Result<()> {
        let Some(path) = self.xdp_loader else {
            return Ok(());
        };
        ensure!(
            path.is_file(),
            "--xdp-loader {} is not a file; on Debian: apt install xdp-tools",
            path.display()
        );
        match compiled(toolchain).await {
            Ok(object) => XdpLoader { path, object }.introduce(),
            Err(error) => {
                tracing::error!(
                    error,
                    "probes can't join dispatchers of libxdp: the program for that can't be compiled"
                );
            }
        }
        Ok(())
    }
}

async fn compiled(toolchain: &Toolchain) -> Result<Vec<u8>, String> {
    let (none, calls) = (BTreeMap::new(), Calls::new());
    let unit = Unit {
        field: "--xdp-loader",
        source: SOURCE,
        files: &none,
        defines: &none,
        dialect: Dialect::Libbpf,
        entry: None,
        calls: &calls,
        other: None,
        hook: Hook::Xdp,
        verdict: Verdict::Observe,
        frags: true,
    };
    let compiled = toolchain.known()?.compile(&unit).await;
    compiled.map(|object| object.elf).map_err(|rejection| {
        let messages: Vec<&str> = rejection
            .findings
            .iter()
            .map(|finding| &*finding.message)
            .collect();
        messages.join("; ")
    })
}
