//! A batch on its way to a receiver: cut into messages, which are divided where the receiver
//! refuses them.

use std::ops::Range;
use std::sync::Arc;

use super::answer::{self, PushAnswer};
use super::options::PushOptions;
use super::protocol::PushProtocol;
use crate::http::access::HttpAccess;
use crate::receiver::{ItemFate, RefusedSamples, SendError, StreamItem, StreamWindow};
use crate::samples::parse::{self, DocumentPieces};

/// The number of times that parts of one window are divided to find the samples that the receiver
/// refuses. Without a bound, a window that it refuses as a whole would cost a message for each
/// sample.
const DIVISIONS: u32 = 64;

/// The most points in memory at once. A window may have millions.
const ROUND: usize = 1 << 14;

/// Points of an item.
struct ItemLoad<'a, T> {
    /// The place of the window in the batch.
    item: usize,
    window: &'a StreamWindow,
    points: Vec<T>,
}

/// The fate of an item so far.
#[derive(Clone, Debug, Default)]
struct LoadFate {
    samples: u64,
    refused: u64,
    reason: Option<String>,
    is_repeat: bool,
    divisions: u32,
    /// The reason why the document is unreadable.
    unreadable: Option<String>,
}

/// A batch, of which the receiver has stored a part.
pub struct PushDelivery<'a, P: PushProtocol> {
    protocol: &'a P,
    access: &'a HttpAccess,
    options: &'a PushOptions,
    /// The most bytes of a message. The number shrinks if the receiver wants smaller messages.
    limit: &'a mut usize,
    batch: &'a [Arc<StreamItem>],
    /// The first item with unsent points, and the rest of its document; `None` before its first
    /// piece.
    next: (usize, Option<DocumentPieces<'a>>),
    /// The points that are sent in the present round.
    loads: Vec<ItemLoad<'a, P::Point>>,
    /// All points of `loads`, each as the index of its load and its index in the load.
    order: Vec<(usize, usize)>,
    /// The fates of all items.
    fates: Vec<LoadFate>,
    /// True once the receiver has accepted an empty message, which shows that a refusal is about
    /// the data.
    takes_messages: bool,
    /// The number of items about which the receiver has decided.
    decided: usize,
}

impl<'a, P: PushProtocol> PushDelivery<'a, P> {
    pub fn new(
        protocol: &'a P,
        access: &'a HttpAccess,
        options: &'a PushOptions,
        limit: &'a mut usize,
        batch: &'a [Arc<StreamItem>],
    ) -> Self {
        Self {
            protocol,
            access,
            options,
            limit,
            batch,
            next: (0, None),
            loads: Vec::new(),
            order: Vec::new(),
            fates: vec![LoadFate::default(); batch.len()],
            takes_messages: false,
            decided: 0,
        }
    }

    /// Sends all points in order. After an error the receiver has decided about a part of them.
    pub async fn run(&mut self) -> Result<(), SendError> {
        while self.next.0 < self.batch.len() {
            self.load();
            self.decide(0);
            self.round().await?;
        }
        Ok(())
    }

    /// Reads the points of the next round, from many small windows or from a piece of a large
    /// window.
    fn load(&mut self) {
        (self.loads, self.order) = (Vec::new(), Vec::new());
        while let Some(item) = self.batch.get(self.next.0)
            && self.order.len() < ROUND
        {
            // The protocols can't express a gap.
            let points = match &**item {
                StreamItem::Window(window) => self.points(window).map(|points| (window, points)),
                StreamItem::Gap(_) => None,
            };
            match points {
                Some((window, points)) => self.add(window, points),
                None => self.next = (self.next.0 + 1, None),
            }
        }
    }

    fn add(&mut self, window: &'a StreamWindow, points: Vec<P::Point>) {
        let item = self.next.0;
        self.fates[item].samples += points
            .iter()
            .map(|point| self.protocol.samples(point))
            .sum::<u64>();
        if self.loads.last().is_none_or(|last| last.item != item) {
            self.loads.push(ItemLoad {
                item,
                window,
                points: Vec::new(),
            });
        }
        let at = self.loads.len() - 1;
        let known = &mut self.loads[at].points;
        self.order
            .extend((known.len()..known.len() + points.len()).map(|point| (at, point)));
        known.extend(points);
    }

    /// Returns the next points of a window; `None` at its end.
    fn points(&mut self, window: &'a StreamWindow) -> Option<Vec<P::Point>> {
        let (item, rest) = &mut self.next;
        let points = match rest {
            Some(pieces) => pieces
                .next()?
                .map(|piece| self.protocol.points(window, &piece)),
            None => parse::pieces(&window.document, ROUND).map(|pieces| {
                *rest = Some(pieces);
                self.protocol.about(window)
            }),
        };
        points
            .map_err(|error| self.fates[*item].unreadable = Some(error))
            .ok()
    }

    /// Notes that the receiver has decided about the points before this one.
    fn decide(&mut self, end: usize) {
        self.decided = self
            .order
            .get(end)
            .map_or(self.next.0, |(load, _)| self.loads[*load].item);
    }

    async fn round(&mut self) -> Result<(), SendError> {
        let mut next = 0;
        while next < self.order.len() {
            let message = self.cut(next);
            next = message.end;
            // Divided messages stay in order: receivers take the samples of a series by their
            // times.
            let mut parts = vec![message];
            while let Some(part) = parts.pop() {
                match self.post(&part).await? {
                    Some(middle) => parts.extend([middle..part.end, part.start..middle]),
                    None => self.decide(part.end),
                }
            }
        }
        Ok(())
    }

    /// Returns the points from `start` on that fit into a message; at least one.
    fn cut(&self, start: usize) -> Range<usize> {
        let mut bytes = 0;
        let fitting = self.order[start..].iter().take_while(|(load, point)| {
            bytes += self.protocol.size(&self.loads[*load].points[*point]);
            bytes <= *self.limit
        });
        start..start + fitting.count().max(1)
    }

    /// Sends a part of the batch. Returns where it must be divided; `None` if the receiver has
    /// decided about all of it.
    async fn post(&mut self, part: &Range<usize>) -> Result<Option<usize>, SendError> {
        let bytes = self.bytes(part);
        match self.posted(&self.parts(part)).await? {
            PushAnswer::Taken(None) => Ok(None),
            PushAnswer::Taken(Some((samples, reason))) => {
                // The answer does not say which of the samples are refused.
                self.refuse(part.start, samples, reason);
                Ok(None)
            }
            PushAnswer::TooLarge(reason) => {
                *self.limit = (bytes / 2).clamp(1, *self.limit);
                Ok(self.divide(part, reason, false))
            }
            PushAnswer::Refused(reason) => self.refused(part, reason).await,
        }
    }

    /// Posts a message with these points. After an error the caller can send the same message
    /// again.
    async fn posted(
        &self,
        parts: &[(&StreamWindow, &[P::Point])],
    ) -> Result<PushAnswer, SendError> {
        let (target, url) = (self.options.address(), self.access.url());
        loop {
            let message = self.protocol.message(parts);
            let answer = self
                .access
                .post(url.clone(), self.protocol.headers(), message)
                .await?;
            if !self.protocol.has_turned(&answer) {
                return answer::read(self.protocol, &target, &answer);
            }
        }
    }

    async fn refused(
        &mut self,
        part: &Range<usize>,
        reason: String,
    ) -> Result<Option<usize>, SendError> {
        let [first, last] = [part.start, part.end - 1].map(|at| self.item(at));
        if first != last {
            // The first window in the second half of the part.
            let middle = self.item(part.start + part.len() / 2).max(first + 1);
            return Ok(part.clone().find(|at| self.item(*at) >= middle));
        }
        if self.protocol.is_repeat(&reason) {
            self.fates[first].is_repeat = true;
            return Ok(None);
        }
        if !self.takes_messages {
            if let PushAnswer::Refused(empty) | PushAnswer::TooLarge(empty) =
                self.posted(&[]).await?
            {
                let target = self.options.address();
                return Err(SendError::new(format!(
                    "{target} refuses even an empty message: {empty}"
                )));
            }
            self.takes_messages = true;
        }
        Ok(self.divide(part, reason, true))
    }

    /// Returns the middle of a part; `None` if the receiver refuses the part and it can't be
    /// divided.
    fn divide(&mut self, part: &Range<usize>, reason: String, is_bounded: bool) -> Option<usize> {
        let item = self.item(part.start);
        let fate = &mut self.fates[item];
        if part.len() > 1 && (!is_bounded || fate.divisions < DIVISIONS) {
            fate.divisions += u32::from(is_bounded);
            return Some(part.start + part.len() / 2);
        }
        let samples = part.clone().map(|at| self.samples(at)).sum();
        self.refuse(part.start, samples, reason);
        None
    }

    fn refuse(&mut self, at: usize, samples: u64, reason: String) {
        let item = self.item(at);
        let fate = &mut self.fates[item];
        fate.refused += samples;
        fate.reason.get_or_insert(reason);
    }

    /// The place in the batch of a point's item.
    fn item(&self, at: usize) -> usize {
        self.loads[self.order[at].0].item
    }

    fn samples(&self, at: usize) -> u64 {
        let (load, point) = self.order[at];
        self.protocol.samples(&self.loads[load].points[point])
    }

    fn bytes(&self, part: &Range<usize>) -> usize {
        self.order[part.clone()]
            .iter()
            .map(|(load, point)| self.protocol.size(&self.loads[*load].points[*point]))
            .sum()
    }

    /// Returns the points of a part, by window.
    fn parts(&self, part: &Range<usize>) -> Vec<(&StreamWindow, &[P::Point])> {
        let same = self.order[part.clone()].chunk_by(|one, other| one.0 == other.0);
        same.map(|points| {
            let (load, first) = points[0];
            let load = &self.loads[load];
            (load.window, &load.points[first..first + points.len()])
        })
        .collect()
    }

    /// Returns the fates of the items. Items that the receiver has not decided about have the fate
    /// `left`.
    pub fn fates(&self, left: &ItemFate) -> Vec<ItemFate> {
        let fates = self.fates.iter().enumerate();
        fates
            .map(|(at, fate)| match fate {
                _ if at >= self.decided => left.clone(),
                LoadFate {
                    unreadable: Some(reason),
                    ..
                } => ItemFate::Refused(RefusedSamples {
                    samples: 0,
                    is_whole: true,
                    reason: reason.clone(),
                }),
                LoadFate {
                    refused: 0,
                    is_repeat: true,
                    ..
                } => ItemFate::Repeat,
                LoadFate { refused: 0, .. } => ItemFate::Stored,
                LoadFate {
                    samples,
                    refused,
                    reason,
                    ..
                } => ItemFate::Refused(RefusedSamples {
                    samples: *refused,
                    is_whole: refused >= samples,
                    reason: reason.clone().unwrap_or_default(),
                }),
            })
            .collect()
    }

    /// True if the receiver has decided about an item as a whole.
    pub const fn has_decided(&self) -> bool {
        self.decided > 0
    }
}
