//! The section of the page.

use anyhow::Result;

use crate::experiments::export::{formats, peers, windows};
use crate::frame::options::Bench;
use crate::frame::section::Section;

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Exporting",
        "How much time and memory does the export of a large table take, and what do other tools take?",
        "GET over the Unix socket by a client that discards what it reads, in turns with `bare`: \
         `BPF_MAP_LOOKUP_BATCH` of the same HASH in another process. `bare` has two turns: the null comparison. \
         bpftool, BCC and ebpf_exporter run in turns with ours. Windows are those of flow-features while frames of \
         25,000 flows arrive as fast as possible. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "`bare` is in one thread, with 65,536 entries per call. Memory is the largest RssAnon of the daemon, less \
         that before the first GET. The client reads pieces of at most 256 KiB, and reads RssAnon at each piece. \
         The slow client pauses for 2 ms after each piece. The others are `bpftool -j map dump` into /dev/null; BCC \
         (`items_lookup_batch`, then `json.dumps`, in one process) and ebpf_exporter (over TCP), with their own \
         tables of the same content. A check finds every entry in all answers. A window is flip, grace period, \
         extraction, file, fsync, reset, JSON."
        .to_owned();
    formats::measure(bench, &mut section)?;
    let mut missing = peers::readers(bench, &mut section)?;
    missing.extend(peers::scrapes(bench, &mut section)?);
    let (windows, generator) = windows::windows(bench)?;
    section.generator = Some(generator);
    section.tables.push(windows);
    section.meaning = "The daemon renders a live map while it reads, and never holds it. So a small daemon exports \
        a table of any size. OpenMetrics wants all samples of a family in one place, and each number of a struct is \
        a family. So the daemon reads the map once, keeps its rows in a nameless file, and writes each further \
        family from that. A document about a struct of six numbers has six times as many samples as entries, each \
        with all labels of the key. One thread reads, others render and send. A profile of a million structs as \
        JSON, on an Intel Xeon, found the reading thread at work from the first entry to the last. 97 % of its \
        samples were in the kernel's lookups and their copies. The surplus over `bare` has two reasons: the same \
        lookups take 3 % longer beside a processor that renders, and there is time before the first and after the \
        last entry."
        .to_owned();
    if !missing.is_empty() {
        section.meaning += &format!(" Not here, and so not measured: {}.", missing.join(", "));
    }
    Ok(section)
}
