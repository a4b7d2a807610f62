//! The encoder of an OpenMetrics document about one probe: a page whose counter of omissions has no
//! labels.

use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Head, RawTable};

use super::info::{approximations, origins, pods};
use super::page_encoder::PageEncoder;
use crate::encode::encoder::DocumentEncoder;
use crate::metric::Metric;

/// A document about one probe.
#[derive(Debug)]
pub struct Collector {
    page: PageEncoder,
    context: Arc<Context>,
    /// The families about the origin and about approximate numbers; `None` after the page has
    /// begun.
    about: Option<String>,
}

impl Collector {
    /// Makes the document. The format has no place for most of the head: only for the name of the
    /// probe, the origin, and the reasons for approximate numbers.
    pub fn new(head: &Head<'_>, context: Arc<Context>) -> Self {
        let origin = origins(head.origin.iter().map(|origin| (head.probe, *origin)));
        let approximate = approximations(head.approximate.map(|reason| (head.probe, reason)));
        let named = pods([(head.probe, &context.pods)]);
        Self {
            page: PageEncoder::of_one(head),
            context,
            about: Some(origin + &approximate + &named),
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(about) = self.about.take() {
            self.page.begin(&about, out);
        }
    }
}

impl DocumentEncoder for Collector {
    fn skipped_before(&mut self, skipped: u64) {
        self.page.skipped_before(skipped);
    }

    fn add_metric(&mut self, metric: &Arc<Metric>) {
        self.page.add_metric(metric, Arc::clone(&self.context));
    }

    fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.begin(out);
        self.page.next_table(out)
    }

    fn asks_again(&self) -> bool {
        self.page.asks_again()
    }

    fn rows(&mut self, table: &RawTable, out: &mut Vec<u8>) {
        self.page.rows(table, out);
    }

    fn more(&mut self, out: &mut Vec<u8>) -> bool {
        self.page.more(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> u64 {
        self.begin(out);
        self.page.finish(out).iter().sum()
    }
}
