//! Maps that are shown as they are: read while the client takes the answer, and never held in memory. A reading takes
//! nothing out of these maps, so that a client that goes away causes no loss.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use twinprobe_ebpf_common::RawTable;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_kernel::MetricMap;

use crate::engine::error::Broken;

/// The number of chunks that are read ahead of the client.
const AHEAD: usize = 2;
/// The time that a client has for each chunk once the probe is gone.
const GRACE: Duration = Duration::from_millis(500);

/// A map and the life of its probe. The probe's maps must not live as long as a slow client.
#[derive(Clone, Debug)]
pub struct LiveMap {
    pub map: Arc<MetricMap>,
    /// A channel that closes when the probe is replaced or deleted.
    pub gone: watch::Receiver<()>,
}

/// The rows of one reading.
#[derive(Debug)]
pub struct LiveRows(mpsc::Receiver<Message>);

#[derive(Debug)]
enum Message {
    Rows(RawTable),
    End(Result<(), Broken>),
}

impl LiveMap {
    /// Starts to read. Each reading has a thread of its own, because it waits for its client: on the threads that all
    /// requests share, other requests would wait, too.
    pub fn rows(self) -> Result<LiveRows, Broken> {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let runtime = Handle::current();
        std::thread::Builder::new()
            .name("live-reading".into())
            .spawn(move || self.run(&runtime, &sender))
            .map_err(|error| Broken(format!("no thread can be had to read the map: {error}")))?;
        Ok(LiveRows(receiver))
    }

    fn run(mut self, runtime: &Handle, sender: &mpsc::Sender<Message>) {
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
        let mut sink = |chunk: &RawTable| match send(Message::Rows(chunk.clone())) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        let end = match self.map.read_chunks(AfterRead::Keep, &mut sink) {
            Ok(ControlFlow::Break(())) => return,
            Ok(ControlFlow::Continue(())) => Ok(()),
            Err(error) => Err(Broken(with_causes(&error))),
        };
        send(Message::End(end));
    }
}

impl LiveRows {
    pub async fn chunk(&mut self) -> Result<Option<Arc<RawTable>>, Broken> {
        match self.0.recv().await {
            Some(Message::Rows(rows)) => Ok(Some(Arc::new(rows))),
            Some(Message::End(end)) => end.map(|()| None),
            None => Err(Broken("the probe was replaced or deleted".into())),
        }
    }
}
