//! The scene of the tests of the command line.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology};

/// Counts packets and bytes. The line with the comment has a place for a mistake.
pub const SOURCE: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct counters { __u64 packets; __u64 bytes; };
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, struct counters);
    __uint(max_entries, 16);
} seen SEC(".maps");
SEC("xdp") int count(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data;
    void *data_end = (void *)(long)ctx->data_end;
    struct counters zero = {}, *counters;
    __u32 key = 7;

    bpf_map_update_elem(&seen, &key, &zero, BPF_NOEXIST);
    counters = bpf_map_lookup_elem(&seen, &key);
    if (!counters) return XDP_PASS; /* a place for a mistake */
    __sync_fetch_and_add(&counters->packets, 1);
    __sync_fetch_and_add(&counters->bytes, data_end - data);
    return XDP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

const CONFIG: &str = "interface: mon0
ingress:
  source_file: count.bpf.c
  metrics: [{ name: seen, map: seen, snapshot: true, init: true, help: What came }]
";

/// A daemon, a generator and a folder with a probe in it.
pub struct Scene {
    pub daemon: Daemon,
    pub generator: Generator,
    pub folder: TempDir,
    _topology: Topology,
}

/// The outcome of a command.
pub struct Outcome {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Scene {
    pub fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        let folder = tempfile::tempdir()?;
        write(folder.path(), "count.bpf.c", SOURCE)?;
        write(folder.path(), "count.yaml", CONFIG)?;
        Ok(Self {
            daemon,
            generator,
            folder,
            _topology: topology,
        })
    }

    /// Writes a file into the folder.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        write(self.folder.path(), name, text)
    }

    /// Runs a command in the folder; spaces separate its words.
    pub fn run(&self, arguments: &str) -> Result<Outcome> {
        let words: Vec<&str> = arguments.split(' ').collect();
        outcome(
            self.daemon
                .client_command(&words)?
                .current_dir(self.folder.path()),
        )
    }

    /// Runs a command likewise, and panics if the command fails. Returns its output.
    #[track_caller]
    pub fn succeed(&self, arguments: &str) -> String {
        let outcome = self.run(arguments).expect("it starts");
        assert_eq!(
            outcome.code, 0,
            "{arguments}: {}{}",
            outcome.out, outcome.err
        );
        outcome.out
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::write(folder.join(name), text).with_context(|| name.to_owned())
}

/// Runs a command to its end.
pub fn outcome(command: &mut Command) -> Result<Outcome> {
    let output = command.output()?;
    let text = |bytes| String::from_utf8(bytes).context("text");
    Ok(Outcome {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout)?,
        err: text(output.stderr)?,
    })
}
