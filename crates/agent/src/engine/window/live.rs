//! The reading of maps whose present content is shown. They are read while the client receives the
//! answer, and are never completely in memory. A reading removes nothing from these maps, so that a
//! client that hangs up causes no loss.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{RawTable, TableLayout};
use twinprobe_kernel::MetricMap;

use crate::engine::error::Broken;
use crate::engine::reading::metric::MapOfInterface;
use crate::engine::window::kept::{Keeping, Kept};

/// The number of chunks that are read ahead of the client, so that the reading continues while a
/// client or a writer waits some milliseconds for a processor.
const AHEAD: usize = 8;
/// The longest time for which a chunk waits for its client after the probe was deleted.
const GRACE: Duration = Duration::from_millis(500);

/// The maps of a metric, and a signal for the end of its probe. The probe's maps must not live as
/// long as a slow client.
#[derive(Clone, Debug)]
pub struct LiveMap {
    pub maps: Vec<(MapOfInterface, Arc<MetricMap>)>,
    /// The layout of the rows of the maps.
    pub layout: Arc<TableLayout>,
    /// A channel that closes when the probe is replaced or deleted.
    pub gone: watch::Receiver<()>,
}

/// The rows of one reading.
#[derive(Debug)]
pub struct LiveRows {
    messages: mpsc::Receiver<LiveMessage>,
    /// The rows that were passed on last. The reading uses their memory again after the last reader
    /// has dropped them.
    last: Option<Arc<RawTable>>,
    spare: Spare,
    /// All rows with their place, once they have been read, if the answer needs them again.
    kept: Option<(Kept, Keeping)>,
}

/// The memory of rows that have been written. A chunk is so large that otherwise the allocator
/// would map and unmap it every time.
type Spare = Arc<Mutex<Vec<RawTable>>>;

#[derive(Debug)]
enum LiveMessage {
    Rows(RawTable),
    End(Result<Option<(Kept, Keeping)>, Broken>),
}

impl LiveMap {
    /// Starts to read, and to keep the rows if there is a place for them. Each reading has its own
    /// thread, because it waits for its client: on the threads that all requests share, it would
    /// delay other requests.
    pub fn rows(self, keeping: Option<Keeping>) -> Result<LiveRows, Broken> {
        let (sender, messages) = mpsc::channel(AHEAD);
        let runtime = Handle::current();
        let spare = Spare::default();
        let unused = Arc::clone(&spare);
        std::thread::Builder::new()
            .name("live-reading".into())
            .spawn(move || self.run(&runtime, &sender, &unused, keeping))
            .map_err(|error| {
                Broken(format!(
                    "no thread could be started to read the map: {error}"
                ))
            })?;
        Ok(LiveRows {
            messages,
            last: None,
            spare,
            kept: None,
        })
    }

    fn run(
        mut self,
        runtime: &Handle,
        sender: &mpsc::Sender<LiveMessage>,
        spare: &Mutex<Vec<RawTable>>,
        mut keeping: Option<Keeping>,
    ) {
        let mut send = |message| {
            let gone = &mut self.gone;
            runtime.block_on(async {
                let too_late = async {
                    while gone.changed().await.is_ok() {}
                    tokio::time::sleep(GRACE).await;
                };
                tokio::select! {
                    sent = sender.send(message) => sent.is_ok(),
                    () = too_late => false,
                }
            })
        };
        let mut sink = |of: &MapOfInterface, chunk: &mut RawTable| {
            if let Cow::Owned(named) = of.named(chunk, &self.layout) {
                *chunk = named;
            }
            // Rows that can't be kept are read again.
            keeping = keeping
                .take()
                .and_then(|mut keeping| keeping.add(chunk).ok().map(|()| keeping));
            // Returned memory is overwritten by the next rows.
            let mut rows = spare.lock().pop().unwrap_or_default();
            std::mem::swap(&mut rows, chunk);
            if send(LiveMessage::Rows(rows)) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let mut failed = None;
        for (of, map) in &self.maps {
            match map.read_chunks(AfterRead::Keep, &mut |chunk: &mut RawTable| sink(of, chunk)) {
                Ok(ControlFlow::Break(())) => return,
                Ok(ControlFlow::Continue(())) => {}
                Err(error) => failed = failed.or(Some(Broken(with_causes(&error)))),
            }
        }
        let kept = keeping.map(|mut keeping| (keeping.finish(), keeping));
        send(LiveMessage::End(failed.map_or(Ok(kept), Err)));
    }
}

impl LiveRows {
    pub async fn chunk(&mut self) -> Result<Option<Arc<RawTable>>, Broken> {
        self.spare
            .lock()
            .extend(self.last.take().and_then(Arc::into_inner));
        match self.messages.recv().await {
            Some(LiveMessage::Rows(rows)) => {
                let rows = Arc::new(rows);
                self.last = Some(Arc::clone(&rows));
                Ok(Some(rows))
            }
            Some(LiveMessage::End(end)) => {
                self.kept = end?;
                Ok(None)
            }
            None => Err(Broken("the probe was replaced or deleted".into())),
        }
    }

    /// Returns all rows with their place, if they were kept and have been read completely.
    pub fn kept(&mut self) -> Option<(Kept, Keeping)> {
        self.kept.take()
    }
}
