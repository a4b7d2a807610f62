//! The section of the page.

use anyhow::Result;

use crate::experiments::export::{formats, peers, windows};
use crate::frame::options::Bench;
use crate::frame::section::Section;

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Exporting",
        "How long do large tables take on their way out, how much memory, and what do other tools take?",
        "GET over the Unix socket by a client that reads and does not look, in turns with `bare`, which is \
         `BPF_MAP_LOOKUP_BATCH` of the same HASH in another process and has two turns: the null comparison. bpftool, \
         BCC and ebpf_exporter run in turns with ours. Windows are those of flow-features while frames of 25,000 \
         flows arrive as fast as possible. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "`bare` is in one thread, with 65,536 entries per call. Memory is the most RssAnon of the daemon, looked at \
         with each piece of at most 256 KiB that the client reads, less that before the first GET; the slow client \
         pauses for 2 ms after each piece. The others are `bpftool -j map dump` into /dev/null; BCC \
         (`items_lookup_batch`, then `json.dumps`, in a process that stays) and ebpf_exporter (over TCP) with tables \
         of their own of the same content. All answers are checked to have every entry. A window is flip, grace \
         period, extraction, file, fsync, reset, JSON."
        .to_owned();
    formats::measure(bench, &mut section)?;
    let mut missing = peers::readers(bench, &mut section)?;
    missing.extend(peers::scrapes(bench, &mut section)?);
    let (windows, generator) = windows::windows(bench)?;
    section.generator = Some(generator);
    section.tables.push(windows);
    section.meaning = "A live map is rendered as it is read and is never held, so that a small daemon exports a table of \
        any size. OpenMetrics wants all samples of a family in one place, and each number of a struct is a family: the map is \
        read once, its rows are kept in a file without a name, and each further family is written from that. A document \
        about a struct of six numbers has six times as many samples as entries, each with all labels of the key. One \
        thread reads, others render and send: a profile of a million structs as JSON, on an Intel Xeon, found the \
        reading thread at work from the first entry to the last, with 97 % of its samples in the kernel's lookups and \
        their copies. What is more than `bare` is that the same lookups take 3 % longer beside a processor that \
        renders, and the time before the first and after the last entry."
        .to_owned();
    if !missing.is_empty() {
        section.meaning += &format!(" Not here, and so not measured: {}.", missing.join(", "));
    }
    Ok(section)
}
