//! The limits for streams that clients keep open. Each stream takes memory and gets all events or
//! changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_access::Who;

use crate::limits::options::EachAndAll;

/// The streams that are open now.
#[derive(Debug)]
pub struct Streams {
    limit: EachAndAll,
    open: Mutex<OpenStreams>,
}

#[derive(Debug, Default)]
struct OpenStreams {
    all: u64,
    by: BTreeMap<String, u64>,
}

/// The place of an open stream. A drop releases the place.
#[derive(Debug)]
pub struct StreamPlace {
    streams: Arc<Streams>,
    who: String,
}

/// The error for a stream without a free place. The end of another stream frees a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{whose} {open} streams open (events, changes), and --max-streams allows {limit}{scope}: close one that is not needed, or \
     try again later"
)]
pub struct TooManyStreams {
    whose: String,
    open: u64,
    limit: u64,
    scope: &'static str,
}

impl Streams {
    pub fn new(limit: EachAndAll) -> Arc<Self> {
        Arc::new(Self {
            limit,
            open: Mutex::default(),
        })
    }

    /// Takes a place for a stream of this client.
    pub fn take(self: &Arc<Self>, who: &Who) -> Result<StreamPlace, TooManyStreams> {
        let who = who.to_string();
        let mut open = self.open.lock();
        let own = open.by.get(&who).copied().unwrap_or_default();
        if own >= self.limit.each {
            let whose = format!("{who} has");
            return Err(TooManyStreams {
                whose,
                open: own,
                limit: self.limit.each,
                scope: " for each client",
            });
        }
        if open.all >= self.limit.all {
            let whose = "all clients have".to_owned();
            return Err(TooManyStreams {
                whose,
                open: open.all,
                limit: self.limit.all,
                scope: " in all",
            });
        }
        open.all += 1;
        open.by.insert(who.clone(), own + 1);
        drop(open);
        Ok(StreamPlace {
            streams: Arc::clone(self),
            who,
        })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock();
        open.all -= 1;
        if let Some(own) = open.by.get_mut(&self.who) {
            *own -= 1;
            if *own == 0 {
                open.by.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_places_and_all_have_some_together() {
        let streams = Streams::new(EachAndAll { each: 2, all: 3 });
        let (a, b) = (Who::Token("a".into()), Who::Token("b".into()));
        let first = streams.take(&a).unwrap();
        let _second = streams.take(&a).unwrap();
        let refused = streams.take(&a).unwrap_err().to_string();
        assert!(
            refused.contains("token:a has 2 streams") && refused.contains("allows 2 for each"),
            "{refused}"
        );
        let third = streams.take(&b).unwrap();
        let refused = streams.take(&b).unwrap_err().to_string();
        assert!(
            refused.contains("all clients have 3") && refused.contains("allows 3 in all"),
            "{refused}"
        );
        drop((first, third));
        let _places = [streams.take(&a).unwrap(), streams.take(&b).unwrap()];
        assert_eq!(streams.open.lock().by.len(), 2);
    }
}
