//! `twinprobe watch`.

use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};
use twinprobe_client::{Client, ClientError, WindowQuery};

use crate::commands::windows::lost;
use crate::error::CommandError;
use crate::output::format::OutputFormat;
use crate::output::print::{self, PipeState};

/// The time in seconds that the daemon is asked to wait for a window.
const POLL: u64 = 60;
/// The time for which requests are repeated while the daemon does not answer.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Prints each window once, those that are retained and then each as it is closed, until it is interrupted or the
/// probe is deleted. A restart of the daemon is waited for.
#[derive(Debug, Args)]
pub struct Watch {
    /// The probe
    name: String,
    /// Format of the windows; json is a line for each window
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    /// Begin after this window; else with the oldest one, or the first that the collector has not acknowledged
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Acknowledge each window once it is printed
    #[arg(long)]
    ack: bool,
    /// Name of the collector that follows and acknowledges
    #[arg(long, value_name = "NAME")]
    collector: Option<String>,
}

/// The progress of a watch.
struct Follower<'a> {
    watch: Watch,
    client: &'a Client,
    after: Option<u64>,
    /// The window that is printed and not acknowledged yet.
    owed: Option<u64>,
    printed: bool,
    /// The time when the probe was created, once the probe was found: another probe of the same name has other windows.
    created: Option<String>,
    trouble: Option<Trouble>,
}

/// The state of the repeated requests while the daemon does not answer.
struct Trouble {
    since: Instant,
    pause: Duration,
}

impl Watch {
    pub async fn run(self, client: &Client) -> Result<(), CommandError> {
        let mut interrupts = signal(SignalKind::interrupt()).map_err(CommandError::Signal)?;
        let follower = Follower {
            after: self.after,
            watch: self,
            client,
            owed: None,
            printed: false,
            created: None,
            trouble: None,
        };
        tokio::select! {
            followed = follower.follow() => followed,
            _ = interrupts.recv() => Ok(()),
        }
    }
}

impl Follower<'_> {
    /// Prints windows until the probe is deleted or nobody reads the output any more.
    async fn follow(mut self) -> Result<(), CommandError> {
        self.identify().await?;
        loop {
            match self.round().await {
                Ok(PipeState::Present) => self.trouble = None,
                Ok(PipeState::Gone) => return Ok(()),
                Err(error) if passes(&error) => self.wait_for_daemon(error).await?,
                Err(error) if not_found(&error) => return Err(self.deleted()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Prints the windows that were closed since the last round, or waits for one.
    async fn round(&mut self) -> Result<PipeState, CommandError> {
        // A round that does not wait shows that the trouble is over.
        let wait = if self.trouble.is_some() { 0 } else { POLL };
        if self.trouble.is_some() {
            self.identify().await?;
        }
        self.settle().await?;
        let Watch { name, collector, .. } = &self.watch;
        let query = WindowQuery { after: self.after, wait: Some(wait), collector: collector.as_deref() };
        let list = self.client.windows(name, query).await?.read()?;
        if list.lost_windows > 0 && !list.windows.is_empty() {
            print::complain(&format!("twinprobe: {}", lost(list.lost_windows)));
        }
        for window in &list.windows {
            if self.take(window.seq).await? == PipeState::Gone {
                return Ok(PipeState::Gone);
            }
        }
        Ok(PipeState::Present)
    }

    async fn take(&mut self, seq: u64) -> Result<PipeState, CommandError> {
        let format = self.watch.output;
        match self.client.window(&self.watch.name, seq, format.media_type()).await {
            Ok(document) => {
                let text = format.show(&document)?;
                let apart = format == OutputFormat::Table && self.printed;
                if apart && print::write(b"\n")? == PipeState::Gone || print::write(&text)? == PipeState::Gone
                {
                    return Ok(PipeState::Gone);
                }
                self.printed = true;
                self.owed = self.watch.ack.then_some(seq);
            }
            // The window is gone since it was listed. If the whole probe is gone, the next listing says so.
            Err(ClientError::Refused(problem)) if problem.status == 404 => {
                print::complain(&format!("twinprobe: {problem}"));
            }
            Err(error) => return Err(error.into()),
        }
        self.after = Some(seq);
        self.settle().await?;
        Ok(PipeState::Present)
    }

    /// Acknowledges the window that was printed.
    async fn settle(&mut self) -> Result<(), CommandError> {
        if let Some(seq) = self.owed {
            let Watch { name, collector, .. } = &self.watch;
            self.client.acknowledge(name, seq, collector.as_deref()).await?;
            self.owed = None;
        }
        Ok(())
    }

    /// Checks that the name still stands for the same probe.
    async fn identify(&mut self) -> Result<(), CommandError> {
        let created = self.client.status(&self.watch.name).await?.read()?.created;
        if self.created.as_ref().is_some_and(|known| *known != created) {
            return Err(self.deleted());
        }
        self.created = Some(created);
        Ok(())
    }

    async fn wait_for_daemon(&mut self, error: CommandError) -> Result<(), CommandError> {
        let trouble = self.trouble.get_or_insert_with(|| {
            print::complain(&format!("twinprobe: {error}; trying again for {} s", PATIENCE.as_secs()));
            Trouble { since: Instant::now(), pause: FIRST_PAUSE }
        });
        if trouble.since.elapsed() > PATIENCE {
            return Err(error);
        }
        sleep(trouble.pause).await;
        trouble.pause = (2 * trouble.pause).min(LONGEST_PAUSE);
        Ok(())
    }

    fn deleted(&self) -> CommandError {
        CommandError::Deleted { name: self.watch.name.clone() }
    }
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
