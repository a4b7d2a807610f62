//! A document or a page as the body of an answer, rendered piece by piece as its maps are read and
//! as the client takes it. A slow client delays only its own answer, and the whole text is never in
//! memory.

use std::sync::Arc;

use futures_util::{Stream, stream};
use hyper::body::Bytes;
use twinprobe_ebpf_common::{RawTable, TableLayout};

use crate::api::documents::pieces::{CHUNK, SentPieces};
use crate::engine::error::Broken;
use crate::engine::window::delivery::{Cursor, DocumentPart};
use crate::engine::window::kept::Keeper;
use crate::store::spool::Spools;

/// The number of raw bytes in each rendering step. The text is several times as long.
const ROWS: usize = 8 << 10;

/// Readings and the encoder that writes them. The encoder has its own numbers for tables.
pub trait Renderable: Send {
    /// Ends the previous table, and returns the number of the next one; `None` if only the end is
    /// left.
    fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize>;

    /// Tells whether the last table will be read again.
    fn asks_again(&self) -> bool;

    fn part(&mut self, table: usize) -> &mut DocumentPart;

    fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>);

    /// Writes the rest of the last rows, up to a chunk. Returns false if nothing is left.
    fn more(&mut self, out: &mut Vec<u8>) -> bool;

    /// Skips the rest of a table that can't be read, or returns the error that ends the answer.
    fn give_up(&mut self, table: usize, error: Broken) -> Result<(), Broken>;

    /// Writes the end of the document.
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Converts the output from `start` on, if the format differs from the encoder's format.
    fn convert(&mut self, _start: usize, _out: &mut Vec<u8>) {}

    /// Notes that the client has received everything, so that the readings are delivered.
    fn taken(&self);

    /// Notes that an answer stopped before its end.
    fn broke_off(&self, error: &Broken);
}

/// A document or a page while it is sent. The readings count as delivered once the client has taken
/// the last piece; an answer that ends early delivers none of them.
pub struct Rendering<R> {
    of: R,
    /// The number of the table that is being written, and the position in it.
    current: Option<(usize, TablePosition)>,
    keeper: Keeper,
    /// The bytes that the connection has not taken yet.
    out: Vec<u8>,
    sent: SentPieces,
    /// True if nothing follows after `out`.
    complete: bool,
}

/// The position of an answer in a table.
struct TablePosition {
    layout: Arc<TableLayout>,
    cursor: Cursor,
    chunk: Arc<RawTable>,
    /// The index of the first row of `chunk` that is not written yet.
    row: usize,
}

impl TablePosition {
    /// Starts before the first row of a metric; [`Self::advance`] fetches that row. Rows that will
    /// be needed again are kept, if there is room for them. After the last row, the kept rows
    /// replace the map as the source of the metric.
    fn new(
        DocumentPart { metric, rows, .. }: &DocumentPart,
        is_needed_again: bool,
        keeper: &mut Keeper,
    ) -> Result<Self, Broken> {
        let place = || {
            if is_needed_again {
                keeper.place()
            } else {
                None
            }
        };
        let (layout, cursor) = (Arc::clone(&metric.layout), rows.cursor(place)?);
        Ok(Self {
            layout,
            cursor,
            chunk: Arc::default(),
            row: 0,
        })
    }

    /// Waits for the next rows of `part`. Returns false if no rows are left.
    async fn advance(
        &mut self,
        part: &mut DocumentPart,
        keeper: &mut Keeper,
    ) -> Result<bool, Broken> {
        // The cursor uses the memory of an unused chunk again.
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

    /// Returns about [`ROWS`] bytes of the fetched rows; `None` if all of them are written.
    fn some_rows(&mut self) -> Option<RawTable> {
        let Self {
            layout, chunk, row, ..
        } = self;
        if *row >= chunk.len(layout) {
            return None;
        }
        let entry = layout.key.size + layout.value_stride();
        let first = *row;
        *row += (ROWS / entry.max(1)).max(1);
        Some(chunk.slice(first, *row, layout))
    }
}

impl<R: Renderable> Rendering<R> {
    /// Creates the rendering. `out` has the text before the first table.
    pub fn new(of: R, out: Vec<u8>, spools: Spools) -> Self {
        let (keeper, sent) = (Keeper::new(spools), SentPieces::default());
        Self {
            of,
            current: None,
            keeper,
            out,
            sent,
            complete: false,
        }
    }

    /// Waits for the first rows, so that an unreadable map leads to an error status and not to an
    /// answer that breaks off.
    pub async fn begun(mut self) -> Result<Self, Broken> {
        self.advance().await?;
        Ok(self)
    }

    /// Returns the pieces of the body. An error ends the answer before its end.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, Broken>> {
        stream::try_unfold(self, |mut rendering| async {
            let piece = rendering
                .piece()
                .await
                .inspect_err(|error| rendering.of.broke_off(error))?;
            Ok(piece.map(|piece| (piece, rendering)))
        })
    }

    /// Returns the whole text; `None` if it has more than `limit` bytes. The readings do not count
    /// as delivered.
    pub async fn whole(mut self, limit: usize) -> Result<Option<Vec<u8>>, Broken> {
        let mut text = Vec::new();
        while !self.complete {
            text.extend_from_slice(&self.piece().await?.unwrap_or_default());
            if text.len() > limit {
                return Ok(None);
            }
        }
        Ok(Some(text))
    }

    /// Returns the next piece, `None` at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Broken> {
        if self.complete {
            self.of.taken();
            return Ok(None);
        }
        self.write().await?;
        Ok(Some(self.sent.take(&mut self.out)))
    }

    /// Writes text until there is enough for a piece, or nothing is left.
    async fn write(&mut self) -> Result<(), Broken> {
        while self.out.len() < CHUNK && !self.complete {
            let start = self.out.len();
            if !self.of.more(&mut self.out) && !self.write_rows() && !self.advance().await? {
                self.of.finish(&mut self.out);
                self.complete = true;
            }
            self.of.convert(start, &mut self.out);
        }
        Ok(())
    }

    /// Appends text to `out` until that is enough for a piece, or nothing is left. Returns true at
    /// the end. The readings do not count as delivered.
    pub async fn append_to(&mut self, out: &mut Vec<u8>) -> Result<bool, Broken> {
        out.append(&mut self.out);
        std::mem::swap(&mut self.out, out);
        let written = self.write().await;
        std::mem::swap(&mut self.out, out);
        written.map(|()| self.complete)
    }

    /// Waits for the next rows of this table, or of the next table. Returns false if no rows are
    /// left.
    async fn advance(&mut self) -> Result<bool, Broken> {
        loop {
            if let Some((table, current)) = &mut self.current {
                let table = *table;
                match current.advance(self.of.part(table), &mut self.keeper).await {
                    Ok(true) => return Ok(true),
                    Ok(false) => self.current = None,
                    Err(error) => {
                        self.current = None;
                        self.of.give_up(table, error)?;
                    }
                }
            }
            let Some(next) = self.of.next_table(&mut self.out) else {
                return Ok(false);
            };
            let again = self.of.asks_again();
            match TablePosition::new(self.of.part(next), again, &mut self.keeper) {
                Ok(current) => self.current = Some((next, current)),
                Err(error) => self.of.give_up(next, error)?,
            }
        }
    }

    /// Writes some of the available rows. Returns false if there are none.
    fn write_rows(&mut self) -> bool {
        let rows = self
            .current
            .as_mut()
            .and_then(|(_, current)| current.some_rows());
        rows.map(|rows| self.of.rows(&rows, &mut self.out))
            .is_some()
    }
}
