//! One page about all probes.

use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Direction, RawTable};

use super::page::{Account, Page};
use super::series::Series;
use super::text::escaped;
use crate::encode::encoder::Encoded;
use crate::metric::Metric;

/// Writes one page about several probes: families of one name are merged. Nothing is kept of the tables, which are
/// asked for again for each family that they have a part in:
///
/// ```text
/// new, (add_probe, add_metric...)..., begin, (next_table, rows... or abandon)..., finish
/// ```
///
/// Each call appends to the caller's buffer, which can be handed on and emptied between any two calls.
#[derive(Debug, Default)]
pub struct PageEncoder {
    page: Page,
    probe: String,
}

impl PageEncoder {
    /// Makes an empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a probe. `skipped_before` is the number of numbers and texts that earlier pages left out, so that the
    /// counter at the end of the page never decreases.
    pub fn add_probe(&mut self, probe: &str, skipped_before: u64) {
        self.probe = probe.to_owned();
        let mut labels = b"{probe=\"".to_vec();
        escaped(&mut labels, probe);
        labels.extend_from_slice(b"\"}");
        let labels = String::from_utf8_lossy(&labels).into_owned();
        self.page.add_account(Account { labels, before: skipped_before, skipped: 0 });
    }

    /// Adds a metric of the probe that was added last. Returns the number by which [`Self::next_table`] asks for it. In
    /// its table no key comes twice, unless it is a trie that is read live.
    pub fn add_metric(&mut self, direction: Direction, metric: &Arc<Metric>, context: Arc<Context>) -> usize {
        self.page.add(Series::new(&self.probe, direction, metric, context), None)
    }

    /// Begins the page, once all metrics have been added. `own` holds further families, already written and without
    /// `# EOF`; their names are not given to others.
    pub fn begin(&mut self, own: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(own.as_bytes());
        if !own.is_empty() && !own.ends_with('\n') {
            out.push(b'\n');
        }
        self.page.begin(own);
    }

    /// Ends the previous table. Returns the number of the table whose rows come next, from the first row on; `None` if
    /// only the end of the page is left.
    pub fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.page.next(out)
    }

    /// Writes the complete entries of `rows`, a part of the table that [`Self::next_table`] returned. `out` grows in
    /// proportion to the entries.
    pub fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>) {
        self.page.rows(rows, out);
    }

    /// Gives up the rest of the table that [`Self::next_table`] returned, because it can't be read. Samples that have
    /// been written stay; the table is not asked for again.
    pub fn abandon(&mut self) {
        self.page.abandon();
    }

    /// Ends the page. Returns the numbers of omitted numbers and texts of each probe, in the order in which the probes
    /// were added.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Encoded> {
        self.page.finish(out).iter().map(|account| Encoded { skipped: account.skipped }).collect()
    }
}
