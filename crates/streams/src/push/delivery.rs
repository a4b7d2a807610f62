//! A batch on its way to a receiver: cut into messages, which are divided where the receiver refuses them.

use std::ops::Range;
use std::sync::Arc;

use super::answer::{self, PushAnswer};
use super::options::PushOptions;
use super::protocol::PushProtocol;
use crate::http::access::HttpAccess;
use crate::receiver::{ItemFate, RefusedSamples, SendError, StreamItem, StreamWindow};

/// The number of times that parts of one window are divided to find the samples that the receiver refuses.
/// Without a bound, a window that it refuses as a whole would cost a message for each sample.
const DIVISIONS: u32 = 64;

/// The points of an item.
pub struct ItemLoad<'a, T> {
    /// `None` for a gap, for which the protocols have no word.
    pub window: Option<&'a StreamWindow>,
    pub points: Vec<T>,
    /// The reason why the document can't be read, if it can't.
    pub unreadable: Option<String>,
}

/// The fate of an item so far.
#[derive(Clone, Debug, Default)]
struct LoadFate {
    refused: u64,
    reason: Option<String>,
    is_repeat: bool,
    divisions: u32,
}

/// A batch, with the part that its receiver has stored.
pub struct PushDelivery<'a, P: PushProtocol> {
    protocol: &'a P,
    access: &'a HttpAccess,
    options: &'a PushOptions,
    /// The most bytes of a message. It shrinks where the receiver wants less.
    limit: &'a mut usize,
    loads: &'a [ItemLoad<'a, P::Point>],
    /// The points of all items: for each the index of its item, and its index in the item.
    order: Vec<(usize, usize)>,
    fates: Vec<LoadFate>,
    /// True once the receiver has taken an empty message, so that a refusal is about the data.
    takes_messages: bool,
    /// The receiver has decided about all points before this one.
    decided: usize,
}

impl<'a, P: PushProtocol> PushDelivery<'a, P> {
    pub fn new(
        protocol: &'a P,
        access: &'a HttpAccess,
        options: &'a PushOptions,
        limit: &'a mut usize,
        loads: &'a [ItemLoad<'a, P::Point>],
    ) -> Self {
        let order = loads
            .iter()
            .enumerate()
            .flat_map(|(at, load)| (0..load.points.len()).map(move |point| (at, point)));
        let order = order.collect();
        let fates = vec![LoadFate::default(); loads.len()];
        Self { protocol, access, options, limit, loads, order, fates, takes_messages: false, decided: 0 }
    }

    /// Sends all points in order. After an error the receiver has decided about a part of them.
    pub async fn run(&mut self) -> Result<(), SendError> {
        let mut next = 0;
        while next < self.order.len() {
            let message = self.cut(next);
            next = message.end;
            // Divided messages stay in order: receivers take the samples of a series by their times.
            let mut parts = vec![message];
            while let Some(part) = parts.pop() {
                match self.post(&part).await? {
                    Some(middle) => parts.extend([middle..part.end, part.start..middle]),
                    None => self.decided = part.end,
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

    /// Sends a part of the batch. Returns where it must be divided; `None` if the receiver has decided about
    /// all of it.
    async fn post(&mut self, part: &Range<usize>) -> Result<Option<usize>, SendError> {
        let bytes = self.bytes(part);
        match self.posted(&self.parts(part)).await? {
            PushAnswer::Taken(None) => Ok(None),
            PushAnswer::Taken(Some((samples, reason))) => {
                // The answer does not say which.
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

    /// Posts a message with these points. After an error the same message can be sent again.
    async fn posted(&self, parts: &[(&StreamWindow, &[P::Point])]) -> Result<PushAnswer, SendError> {
        let (target, url) = (self.options.address(), self.access.url());
        loop {
            let message = self.protocol.message(parts);
            let answer = self.access.post(url.clone(), self.protocol.headers(), message).await?;
            if !self.protocol.has_turned(&answer) {
                return answer::read(self.protocol, &target, &answer);
            }
        }
    }

    async fn refused(&mut self, part: &Range<usize>, reason: String) -> Result<Option<usize>, SendError> {
        let [first, last] = [part.start, part.end - 1].map(|at| self.order[at].0);
        if first != last {
            // The first window of the second half.
            let middle = self.order[part.start + part.len() / 2].0.max(first + 1);
            let place = self.order[part.clone()].iter().position(|(load, _)| *load >= middle);
            return Ok(place.map(|place| part.start + place));
        }
        if self.protocol.is_repeat(&reason) {
            self.fates[first].is_repeat = true;
            return Ok(None);
        }
        if !self.takes_messages {
            if let PushAnswer::Refused(empty) | PushAnswer::TooLarge(empty) = self.posted(&[]).await? {
                let target = self.options.address();
                return Err(SendError::new(format!("{target}: not even an empty message is taken: {empty}")));
            }
            self.takes_messages = true;
        }
        Ok(self.divide(part, reason, true))
    }

    /// Returns the middle of a part; `None` if it is refused as it is.
    fn divide(&mut self, part: &Range<usize>, reason: String, is_bounded: bool) -> Option<usize> {
        let fate = &mut self.fates[self.order[part.start].0];
        if part.len() > 1 && (!is_bounded || fate.divisions < DIVISIONS) {
            fate.divisions += u32::from(is_bounded);
            return Some(part.start + part.len() / 2);
        }
        let samples = part.clone().map(|at| self.samples(at)).sum();
        self.refuse(part.start, samples, reason);
        None
    }

    fn refuse(&mut self, at: usize, samples: u64, reason: String) {
        let fate = &mut self.fates[self.order[at].0];
        fate.refused += samples;
        fate.reason.get_or_insert(reason);
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
    fn parts(&self, part: &Range<usize>) -> Vec<(&'a StreamWindow, &'a [P::Point])> {
        let same = self.order[part.clone()].chunk_by(|one, other| one.0 == other.0);
        same.filter_map(|points| {
            let (load, first) = points[0];
            let load = &self.loads[load];
            Some((load.window?, &load.points[first..first + points.len()]))
        })
        .collect()
    }

    /// Returns the fates of the items. Items that the receiver has not decided about have the fate `left`.
    pub fn fates(&self, left: &ItemFate) -> Vec<ItemFate> {
        let undecided = self.order.get(self.decided).map_or(self.loads.len(), |(load, _)| *load);
        let decided = self.loads.iter().zip(&self.fates).enumerate();
        decided
            .map(|(at, (load, fate))| match fate {
                _ if at >= undecided => left.clone(),
                _ if load.unreadable.is_some() => ItemFate::Refused(RefusedSamples {
                    samples: 0,
                    is_whole: true,
                    reason: load.unreadable.clone().unwrap_or_default(),
                }),
                LoadFate { refused: 0, is_repeat: true, .. } => ItemFate::Repeat,
                LoadFate { refused: 0, .. } => ItemFate::Stored,
                LoadFate { refused, reason, .. } => {
                    let all = load.points.iter().map(|point| self.protocol.samples(point)).sum();
                    ItemFate::Refused(RefusedSamples {
                        samples: *refused,
                        is_whole: *refused >= all,
                        reason: reason.clone().unwrap_or_default(),
                    })
                }
            })
            .collect()
    }

    /// True if the receiver has decided about an item as a whole.
    pub fn has_decided(&self) -> bool {
        self.order.get(self.decided).is_none_or(|(load, _)| *load > 0)
    }
}

/// Returns the points of each item of a batch.
pub fn loads<'a, P: PushProtocol>(protocol: &P, batch: &'a [Arc<StreamItem>]) -> Vec<ItemLoad<'a, P::Point>> {
    let load = |item: &'a Arc<StreamItem>| match &**item {
        StreamItem::Gap(_) => ItemLoad { window: None, points: Vec::new(), unreadable: None },
        StreamItem::Window(window) => {
            let (points, unreadable) = match crate::samples::parse::document(&window.document) {
                Ok(document) => (protocol.points(window, &document), None),
                Err(error) => (Vec::new(), Some(error)),
            };
            ItemLoad { window: Some(window), points, unreadable }
        }
    };
    batch.iter().map(load).collect()
}
