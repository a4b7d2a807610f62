//! The document of one reading.

use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Format, RawTable};
use twinprobe_exporter::{DocumentEncoder, document_encoder};

use crate::api::documents::rendering::{Renderable, Rendering};
use crate::engine::deployer::Deployer;
use crate::engine::error::Broken;
use crate::engine::window::delivery::{Delivery, DocumentPart};

/// A reading in one format. A table that can't be read ends the answer.
pub struct OneDocument {
    encoder: Box<dyn DocumentEncoder>,
    delivery: Delivery,
}

/// Begins the document of a reading, and waits for its first rows.
pub async fn begin(
    delivery: Delivery,
    format: Format,
    deployer: &Deployer,
) -> Result<Rendering<OneDocument>, Broken> {
    let mut out = Vec::new();
    // The packets of a capture may be from anywhere.
    let owners = match delivery.replay() {
        None => deployer.pods.owners_at(delivery.window()),
        Some(_) => None,
    };
    let context = match owners {
        Some(_) => Arc::new(Context {
            owners,
            ..Context::clone(&delivery.context)
        }),
        None => Arc::clone(&delivery.context),
    };
    let mut encoder = document_encoder(format, &delivery.head(), context, &mut out);
    encoder.skipped_before(delivery.skipped_before);
    delivery
        .parts
        .iter()
        .for_each(|part| encoder.add_metric(&part.metric));
    Rendering::new(OneDocument { encoder, delivery }, out, deployer.spools())
        .begun()
        .await
}

impl Renderable for OneDocument {
    fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.encoder.next_table(out)
    }

    fn asks_again(&self) -> bool {
        self.encoder.asks_again()
    }

    fn part(&mut self, table: usize) -> &mut DocumentPart {
        &mut self.delivery.parts[table]
    }

    fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>) {
        self.encoder.rows(rows, out);
    }

    fn more(&mut self, out: &mut Vec<u8>) -> bool {
        self.encoder.more(out)
    }

    fn give_up(&mut self, _: usize, error: Broken) -> Result<(), Broken> {
        Err(error)
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.delivery.skipped(self.encoder.finish(out));
    }

    fn taken(&self) {
        self.delivery.complete();
    }

    fn broke_off(&self, error: &Broken) {
        tracing::warn!(probe = self.delivery.probe, %error, "an answer broke off before its end");
    }
}
