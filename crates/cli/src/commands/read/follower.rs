//! The windows of a probe, one after the other, for `twinprobe watch`.

use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};
use twinprobe_api::ConfigDocument;
use twinprobe_client::{Answer, Client, ClientError, Document, LargestEntries, WindowQuery};

use crate::commands::read::watch::{From, WatchCommand};
use crate::commands::read::windows::lost;
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::format::OutputFormat;
use crate::output::print::{self, PipeState};
use crate::output::rates;
use crate::output::screen::can_redraw;
use crate::output::view::{OutputView, yaml};

/// The time in seconds that the daemon is asked to wait for a window.
const POLL: u64 = 60;
/// The time for which requests are repeated while the daemon does not answer.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The time between two windows of a probe that has no interval.
const INTERVAL: Duration = Duration::from_secs(2);
/// The sequence that clears a terminal and puts the cursor to its top.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J\x1b[3J";

/// The progress of a watch.
pub struct WindowFollower<'a> {
    watch: WatchCommand,
    client: &'a Client,
    after: Option<u64>,
    /// The printed window that is still to be acknowledged.
    owed: Option<u64>,
    printed: bool,
    /// The time when the probe was created, once the probe was found: another probe of the same
    /// name has other windows.
    created: Option<String>,
    config: Option<ConfigDocument>,
    retry: Option<Retry>,
    /// The previous document and the time of its arrival, for rates.
    before: Option<(Value, Instant)>,
    /// The time of the next picture.
    next: Instant,
}

/// The state of the repeated requests while the daemon does not answer.
struct Retry {
    since: Instant,
    pause: Duration,
}

/// The next step of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    End,
}

impl WatchCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        if self.rate && self.output.view().is_none() {
            return Err(CommandError::NoRates);
        }
        let client = session.fleet.one()?;
        let mut interrupts = signal(SignalKind::interrupt()).map_err(CommandError::Signal)?;
        tokio::select! {
            followed = WindowFollower::new(self, client).follow() => followed,
            _ = interrupts.recv() => Ok(()),
        }
    }
}

impl<'a> WindowFollower<'a> {
    pub fn new(watch: WatchCommand, client: &'a Client) -> Self {
        let after = match watch.from {
            Some(From::After(seq)) => Some(seq),
            _ => watch.after,
        };
        Self {
            after,
            watch,
            client,
            owed: None,
            printed: false,
            created: None,
            config: None,
            retry: None,
            before: None,
            next: Instant::now(),
        }
    }

    /// Shows windows until the probe is deleted or the output has no reader any more.
    pub async fn follow(mut self) -> Result<(), CommandError> {
        let newest = self.identify().await?;
        let closes = self.closes();
        if self.watch.from == Some(From::Now) {
            self.after = newest;
        }
        let mut begun = false;
        loop {
            let round = match (closes, begun) {
                (true, false) => self.begin().await,
                (true, true) => self.close().await,
                (false, _) => self.round().await,
            };
            match round {
                Ok(Then::GoOn) => (self.retry, begun) = (None, true),
                Ok(Then::End) => return Ok(()),
                Err(error) if passes(&error) => self.wait_for_daemon(error).await?,
                Err(error) if not_found(&error) => return Err(self.deleted()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells whether the watch must close the windows itself. A watch for a collector closes
    /// windows only if it has an interval of its own.
    fn closes(&self) -> bool {
        let Some(config) = &self.config else {
            return false;
        };
        let has_interval = config
            .window
            .as_ref()
            .is_some_and(|window| window.interval.is_some());
        !has_interval && (self.watch.interval.is_some() || !self.watch.collects())
    }

    /// Begins a watch that closes windows itself: shows the retained windows, or takes a first
    /// reading of cumulative numbers.
    async fn begin(&mut self) -> Result<Then, CommandError> {
        if self.watch.from == Some(From::Now) || self.watch.rate {
            let document = self.read().await?;
            self.after = seq(&document).or(self.after);
            self.before = Some((document.read()?, Instant::now()));
            self.next = Instant::now() + self.interval();
            return Ok(Then::GoOn);
        }
        if self.watch.once {
            Ok(Then::GoOn)
        } else {
            self.list(None).await
        }
    }

    /// Waits for the end of the interval, closes the window and shows it.
    async fn close(&mut self) -> Result<Then, CommandError> {
        if self.retry.is_some() {
            self.identify().await?;
        }
        self.settle().await?;
        sleep_until(self.next).await;
        self.next = (self.next + self.interval()).max(Instant::now());
        let document = self.read().await?;
        self.after = seq(&document).or(self.after);
        self.shown(&document, self.after).await
    }

    fn interval(&self) -> Duration {
        self.watch.interval.unwrap_or(INTERVAL)
    }

    /// Closes the window; reads the live metrics of a probe that has no windows.
    async fn read(&self) -> Result<Answer<Document>, CommandError> {
        let (name, accept) = (&self.watch.name, self.watch.output.media_type());
        match self.client.close_window(name, accept).await {
            Err(ClientError::Refused(problem)) if problem.status == 409 => Ok(self
                .client
                .metrics(name, accept, LargestEntries::default())
                .await?),
            answer => Ok(answer?),
        }
    }

    /// Shows the windows that were closed since the last round, or waits for one.
    async fn round(&mut self) -> Result<Then, CommandError> {
        // This round does not wait, and shows whether the daemon answers again.
        let wait = if self.retry.is_some() { 0 } else { POLL };
        if self.retry.is_some() {
            self.identify().await?;
        }
        self.settle().await?;
        self.list(Some(wait)).await
    }

    /// Shows the windows after the last shown one, and waits for one if there is none.
    async fn list(&mut self, wait: Option<u64>) -> Result<Then, CommandError> {
        let WatchCommand {
            name, collector, ..
        } = &self.watch;
        let query = WindowQuery {
            after: self.after,
            wait,
            collector: collector.as_deref(),
        };
        let mut list = self.client.windows(name, query).await?.read()?;
        if list.lost_windows > 0 && !list.windows.is_empty() {
            print::complain(&format!("twinprobe: {}", lost(list.lost_windows)));
        }
        // A picture that is replaced immediately is not worth a request. Rates need the previous
        // window.
        if !self.watch.collects() && (self.redraws() || self.watch.once) {
            let kept = if self.watch.rate { 2 } else { 1 };
            list.windows
                .drain(..list.windows.len().saturating_sub(kept));
        }
        for window in &list.windows {
            if self.take(window.seq).await? == Then::End {
                return Ok(Then::End);
            }
        }
        Ok(Then::GoOn)
    }

    async fn take(&mut self, seq: u64) -> Result<Then, CommandError> {
        let WatchCommand {
            name,
            output,
            picture,
            rate,
            ..
        } = &self.watch;
        // Rates need all entries of the previous window.
        let is_table = output.is_table() && !rate;
        let largest = if is_table {
            picture.largest(None)
        } else {
            LargestEntries::default()
        };
        match self
            .client
            .window(name, seq, output.media_type(), largest)
            .await
        {
            Ok(document) => {
                if self.printed && self.watch.interval.is_some() {
                    sleep_until(self.next).await;
                }
                self.next = Instant::now() + self.interval();
                return self.shown(&document, Some(seq)).await;
            }
            // The window was removed after the list was made. If the whole probe was removed, the
            // next listing tells it.
            Err(ClientError::Refused(problem)) if problem.status == 404 => {
                print::complain(&format!("twinprobe: {problem}"));
            }
            Err(error) => return Err(error.into()),
        }
        self.after = Some(seq);
        Ok(Then::GoOn)
    }

    /// Shows a document and acknowledges its window.
    async fn shown(
        &mut self,
        document: &Answer<Document>,
        seq: Option<u64>,
    ) -> Result<Then, CommandError> {
        if self.show(document).await? == PipeState::Gone {
            return Ok(Then::End);
        }
        self.owed = seq.filter(|_| self.watch.ack);
        self.after = seq;
        self.settle().await?;
        Ok(if self.watch.once && self.printed {
            Then::End
        } else {
            Then::GoOn
        })
    }

    /// Shows a document, or keeps the document for the next one where rates need two.
    async fn show(&mut self, document: &Answer<Document>) -> Result<PipeState, CommandError> {
        let format = self.watch.output;
        let text = if format.is_table() || self.watch.rate {
            let mut shown = document.read()?;
            if self.watch.rate && !self.make_rates(&mut shown) {
                return Ok(PipeState::Present);
            }
            match format {
                OutputFormat::View(OutputView::Json) => shown.to_string(),
                OutputFormat::View(OutputView::Yaml) => yaml(&shown),
                _ => {
                    let config = self.config.as_ref();
                    self.watch
                        .picture
                        .draw(self.client, &shown, config, None, format.screen())
                        .await?
                }
            }
            .into_bytes()
        } else {
            format.show(document)?.into_owned()
        };
        let apart: &[u8] = match (format.is_table(), self.redraws(), self.printed) {
            (true, true, _) => CLEAR,
            (true, false, true) => b"\n",
            _ => b"",
        };
        self.printed = true;
        if print::write_part(&[apart])? == PipeState::Gone {
            return Ok(PipeState::Gone);
        }
        Ok(print::write(&text)?)
    }

    /// Turns the counts of a document into rates. Returns false if that needs a previous document,
    /// and there is none.
    fn make_rates(&mut self, document: &mut Value) -> bool {
        let before = self.before.replace((document.clone(), Instant::now()));
        let earlier = before.as_ref().map(|(earlier, _)| earlier);
        let waited = before
            .as_ref()
            .map_or(0.0, |(_, at)| at.elapsed().as_secs_f64());
        let elapsed = between(earlier, document).unwrap_or(waited);
        rates::per_second(document, earlier, elapsed, self.config.as_ref());
        earlier.is_some() || !self.needs_two()
    }

    /// Tells whether rates of some metric need the previous document.
    fn needs_two(&self) -> bool {
        let directions = self
            .config
            .iter()
            .flat_map(|config| [&config.ingress, &config.egress])
            .flatten();
        let mut metrics = directions.flat_map(|direction| direction.metrics.iter().flatten());
        metrics.any(|metric| metric.init != Some(true))
    }

    /// Tells whether a picture replaces the previous one.
    fn redraws(&self) -> bool {
        self.watch.output.is_table() && !self.watch.once && can_redraw()
    }

    /// Acknowledges the window that was printed.
    async fn settle(&mut self) -> Result<(), CommandError> {
        if let Some(seq) = self.owed {
            let WatchCommand {
                name, collector, ..
            } = &self.watch;
            self.client
                .acknowledge(name, seq, collector.as_deref())
                .await?;
            self.owed = None;
        }
        Ok(())
    }

    /// Checks that the name still belongs to the same probe. Returns the number of its newest
    /// window.
    async fn identify(&mut self) -> Result<Option<u64>, CommandError> {
        let status = self.client.status(&self.watch.name).await?.read()?;
        if self
            .created
            .as_ref()
            .is_some_and(|known| *known != status.created)
        {
            return Err(self.deleted());
        }
        (self.created, self.config) = (Some(status.created), status.config);
        Ok(status.windows.statistics.newest)
    }

    async fn wait_for_daemon(&mut self, error: CommandError) -> Result<(), CommandError> {
        let retry = self.retry.get_or_insert_with(|| {
            print::complain(&format!(
                "twinprobe: {error}; trying again for {} s",
                PATIENCE.as_secs()
            ));
            Retry {
                since: Instant::now(),
                pause: FIRST_PAUSE,
            }
        });
        if retry.since.elapsed() > PATIENCE {
            return Err(error);
        }
        sleep(retry.pause).await;
        retry.pause = (2 * retry.pause).min(LONGEST_PAUSE);
        Ok(())
    }

    fn deleted(&self) -> CommandError {
        CommandError::Deleted {
            name: self.watch.name.clone(),
        }
    }
}

/// Returns the number of a document's window.
fn seq(document: &Answer<Document>) -> Option<u64> {
    document.read().ok()?["window"]["seq"].as_u64()
}

/// Returns the seconds between the ends of two windows, if both have one.
fn between(before: Option<&Value>, now: &Value) -> Option<f64> {
    let end = |document: &Value| {
        document["window"]["end"]
            .as_str()?
            .parse::<jiff::Timestamp>()
            .ok()
    };
    let seconds = end(now)?.duration_since(end(before?)?).as_secs_f64();
    (seconds > 0.0).then_some(seconds)
}

/// Tells whether a restarted daemon may answer otherwise.
fn passes(error: &CommandError) -> bool {
    match error {
        CommandError::Client(ClientError::Connect { .. } | ClientError::Exchange { .. }) => true,
        CommandError::Client(ClientError::Refused(problem)) => problem.status >= 500,
        _ => false,
    }
}

fn not_found(error: &CommandError) -> bool {
    matches!(error, CommandError::Client(ClientError::Refused(problem)) if problem.status == 404)
}
