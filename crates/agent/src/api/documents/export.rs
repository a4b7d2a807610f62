//! A metrics document as the body of an answer, rendered piece by piece as its maps are read and as the client takes
//! it. A slow client slows its own answer only, and the whole document is never in memory.

use std::sync::Arc;

use futures_util::{Stream, stream};
use hyper::body::Bytes;
use twinprobe_ebpf_common::{Format, RawTable, TableLayout};
use twinprobe_exporter::{DocumentEncoder, document_encoder};

use crate::api::documents::pieces::{CHUNK, SentPieces};
use crate::engine::error::Broken;
use crate::engine::window::delivery::{Cursor, Delivery, Part};
use crate::engine::window::kept::Keeper;
use crate::store::spool::Spools;

/// The number of raw bytes that are rendered at once. The text is several times as long.
const ROWS: usize = 8 << 10;

/// A document while it is sent. The reading counts as delivered once the last piece has been taken; a document that
/// is dropped before that does not deliver it.
pub struct Export {
    encoder: Box<dyn DocumentEncoder>,
    delivery: Delivery,
    /// The place of the table that is being written, and the position in it.
    table: Option<(usize, Current)>,
    keeper: Keeper,
    /// The bytes that the encoder has written and the connection has not taken.
    out: Vec<u8>,
    sent: SentPieces,
    /// True if nothing comes after `out`.
    complete: bool,
}

/// The position of an answer in a table.
pub struct Current {
    layout: Arc<TableLayout>,
    cursor: Cursor,
    chunk: Arc<RawTable>,
    /// The index of the first row of `chunk` that is not written yet.
    row: usize,
}

impl Current {
    /// Starts before the first row of a metric; [`Self::advance`] fetches it. Rows that are needed again are kept, if
    /// there is room for them, and are those of the metric once they have been read to their end.
    pub fn new(
        Part { metric, rows, .. }: &Part,
        is_needed_again: bool,
        keeper: &mut Keeper,
    ) -> Result<Self, Broken> {
        let place = || if is_needed_again { keeper.place() } else { None };
        let (layout, cursor) = (Arc::clone(&metric.layout), rows.cursor(place)?);
        Ok(Self { layout, cursor, chunk: Arc::default(), row: 0 })
    }

    /// Waits for the next rows of `part`. Returns false if no rows are left.
    pub async fn advance(&mut self, part: &mut Part, keeper: &mut Keeper) -> Result<bool, Broken> {
        // The cursor uses the memory of a chunk again that nobody holds.
        self.chunk = Arc::default();
        let Some(chunk) = self.cursor.next().await? else {
            if let Some((rows, place)) = self.cursor.kept() {
                part.rows = rows;
                keeper.give_back(place);
            }
            return Ok(false);
        };
        (self.chunk, self.row) = (chunk, 0);
        Ok(true)
    }

    /// Returns about [`ROWS`] bytes of the rows that are there, `None` if all are written.
    pub fn some_rows(&mut self) -> Option<RawTable> {
        let Self { layout, chunk, row, .. } = self;
        if *row >= chunk.len(layout) {
            return None;
        }
        let entry = layout.key.size + layout.value_stride();
        let first = *row;
        *row += (ROWS / entry.max(1)).max(1);
        Some(chunk.slice(first, *row, layout))
    }
}

impl Export {
    /// Waits for the first rows, so that an unreadable map becomes an error status and not an answer that breaks off.
    pub async fn begin(delivery: Delivery, format: Format, spools: Spools) -> Result<Self, Broken> {
        let mut out = Vec::new();
        let context = Arc::clone(&delivery.context);
        let mut encoder = document_encoder(format, &delivery.head(), context, &mut out);
        encoder.skipped_before(delivery.skipped_before);
        delivery.parts.iter().for_each(|part| encoder.add_metric(part.direction, &part.metric));
        let mut export = Self {
            encoder,
            delivery,
            table: None,
            keeper: Keeper::new(spools),
            out,
            sent: SentPieces::default(),
            complete: false,
        };
        export.advance().await?;
        Ok(export)
    }

    /// Returns the pieces of the body. An error ends the answer before its end.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, Broken>> {
        stream::try_unfold(self, |mut export| async {
            let piece = export.piece().await.inspect_err(|error| {
                tracing::warn!(probe = export.delivery.probe, %error, "an answer broke off before its end");
            })?;
            Ok(piece.map(|piece| (piece, export)))
        })
    }

    /// Returns the next piece, `None` at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Broken> {
        if self.complete {
            self.delivery.complete();
            return Ok(None);
        }
        while self.out.len() < CHUNK {
            if !self.encoder.more(&mut self.out) && !self.write_rows() && !self.advance().await? {
                self.delivery.skipped(self.encoder.finish(&mut self.out));
                self.complete = true;
                break;
            }
        }
        Ok(Some(self.sent.take(&mut self.out)))
    }

    /// Waits for the next rows, of this table or of the next one. Returns false if no rows are left.
    async fn advance(&mut self) -> Result<bool, Broken> {
        loop {
            if let Some((place, table)) = &mut self.table {
                if table.advance(&mut self.delivery.parts[*place], &mut self.keeper).await? {
                    return Ok(true);
                }
                self.table = None;
            }
            let Some(next) = self.encoder.next_table(&mut self.out) else { return Ok(false) };
            let (part, again) = (&self.delivery.parts[next], self.encoder.asks_again());
            self.table = Some((next, Current::new(part, again, &mut self.keeper)?));
        }
    }

    /// Writes some of the rows that are there. Returns false if there are none.
    fn write_rows(&mut self) -> bool {
        let Some(rows) = self.table.as_mut().and_then(|(_, table)| table.some_rows()) else { return false };
        self.encoder.rows(&rows, &mut self.out);
        true
    }
}
