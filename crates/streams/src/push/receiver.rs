//! The receiver: a protocol with its options.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use twinprobe_ebpf_common::Format;

use super::delivery::PushDelivery;
use super::options::PushOptions;
use super::protocol::PushProtocol;
use crate::config::duration;
use crate::http::access::HttpAccess;
use crate::receiver::{
    BatchLimits, ItemFate, ItemName, Receipt, Receiver, SendError, StreamItem, StreamWindow,
};
use crate::receivers::kind::ReceiverSetup;
use crate::samples::parse;

/// The time that a message waits for more windows.
const LINGER: Duration = Duration::from_millis(500);
/// The most bytes of a message before compression, if the configuration sets no limit.
const BYTES: usize = 1 << 20;

/// A receiver that takes samples over HTTP.
pub struct PushReceiver<P> {
    protocol: P,
    options: PushOptions,
    /// The connection. It is dropped after a failure, and the next use reads the files in the
    /// options again.
    access: Option<HttpAccess>,
    limit: usize,
    limits: BatchLimits,
}

impl<P: PushProtocol> PushReceiver<P> {
    pub fn new(protocol: P, options: PushOptions, setup: &ReceiverSetup) -> Self {
        let limit = options.max_bytes.unwrap_or(BYTES);
        let linger = if setup.once {
            duration::SOON.min(LINGER)
        } else {
            LINGER
        };
        let limits = BatchLimits {
            items: 4096,
            bytes: setup.memory / 8,
            linger,
        };
        Self {
            protocol,
            options,
            access: None,
            limit,
            limits,
        }
    }

    async fn store(&mut self, batch: &[Arc<StreamItem>]) -> Result<Receipt, SendError> {
        let access = match self.access.take() {
            Some(access) => access,
            None => HttpAccess::new(&self.options.http())?,
        };
        let mut delivery = PushDelivery::new(
            &self.protocol,
            &access,
            &self.options,
            &mut self.limit,
            batch,
        );
        match delivery.run().await {
            Ok(()) => {
                let fates = delivery.fates(&ItemFate::Stored);
                self.access = Some(access);
                Ok(Receipt(fates))
            }
            // A window that the receiver already has need not be sent again.
            Err(error) if delivery.has_decided() && error.pause().is_none() => Ok(Receipt(
                delivery.fates(&ItemFate::Pending(error.to_string())),
            )),
            Err(error) => Err(error),
        }
    }
}

impl<P: PushProtocol> Receiver for PushReceiver<P> {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn format(&self) -> Format {
        Format::OpenMetrics
    }

    fn send<'a>(
        &'a mut self,
        batch: &'a [Arc<StreamItem>],
    ) -> BoxFuture<'a, Result<Receipt, SendError>> {
        self.store(batch).boxed()
    }

    fn preview(&self, item: &ItemName) -> String {
        format!("{item} -> {}", self.options.address())
    }

    fn content(&self, window: &StreamWindow, most: usize) -> Result<Vec<String>, SendError> {
        let piece =
            parse::pieces(&window.document, most).and_then(|mut pieces| pieces.next().transpose());
        let mut points = self.protocol.about(window);
        if let Some(piece) = piece.map_err(SendError::new)? {
            points.extend(self.protocol.points(window, &piece));
        }
        Ok(points
            .iter()
            .filter_map(|point| self.protocol.shown(point))
            .take(most)
            .collect())
    }
}
