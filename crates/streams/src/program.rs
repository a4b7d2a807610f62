//! The program: arguments, logs, signals, progress, summary.

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{StreamArgs, StreamLogFormat};
use crate::config::stream::StreamConfig;
use crate::rules::check;
use crate::run::preview::{preview, schemas};
use crate::run::stopping::Stopping;
use crate::run::stream::{self, StreamOutcome};
use crate::telemetry::meter::{StreamMeter, StreamTotals};
use crate::telemetry::page;

/// The exit status of wrong usage.
const USAGE: u8 = 2;
/// The longest time until a stream ends, because daemons and receivers may not answer.
const LAST: Duration = Duration::from_secs(8);
const TICK: Duration = Duration::from_millis(500);
/// The control sequence that clears a line of a terminal.
const EMPTY: &[u8] = b"\r\x1b[2K";

/// The standard error stream. On a terminal, a line of the log replaces the line that shows the
/// progress.
struct LogWriter {
    is_terminal: bool,
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut out = io::stderr().lock();
        if self.is_terminal {
            out.write_all(EMPTY)?;
        }
        out.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Runs the program: 0 after success, 1 after a failure, 2 for wrong usage.
pub fn main() -> ExitCode {
    let args = StreamArgs::parse();
    if let Err(error) = start_logging(&args) {
        eprintln!("twinprobe stream: {error:#}");
        return ExitCode::from(USAGE);
    }
    let config = match args.config() {
        Ok(config) => config,
        Err(error) => {
            for mistake in error.mistakes {
                eprintln!("twinprobe stream: {mistake}");
            }
            return ExitCode::from(USAGE);
        }
    };
    match start(&args, config) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("twinprobe stream: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &StreamArgs, config: StreamConfig) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let ends = args.dry_run || args.schema || args.once;
        let config = if ends {
            config.resolved().await.context("from.kubernetes")?
        } else {
            config
        };
        let mistakes = check::mistakes(&config).await;
        if !mistakes.is_empty() {
            for mistake in mistakes {
                eprintln!("twinprobe stream: {mistake}");
            }
            return Ok(ExitCode::from(USAGE));
        }
        if args.dry_run {
            preview(config, &mut io::stdout().lock()).await?;
            return Ok(ExitCode::SUCCESS);
        }
        if args.schema {
            schemas(config, &mut io::stdout().lock()).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let outcome = send(args, config).await?;
        if args.once {
            eprintln!("{}", summary(&outcome));
        }
        Ok(if outcome.is_complete || !args.once {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

async fn send(args: &StreamArgs, config: StreamConfig) -> anyhow::Result<StreamOutcome> {
    let (meter, stopping) = (Arc::new(StreamMeter::default()), Stopping::default());
    let listener = match config.listen {
        Some(address) => {
            let (listener, bound) = page::bind(address)
                .await
                .with_context(|| format!("listen: {address}"))?;
            eprintln!("listening on {bound}");
            Some(listener)
        }
        None => None,
    };
    for destination in &config.destinations {
        tracing::info!(
            name = config.name,
            receiver = destination.target,
            "the stream begins"
        );
    }
    let signals = tokio::spawn(signals(stopping.clone()));
    let progress = io::stderr()
        .is_terminal()
        .then(|| tokio::spawn(progress(Arc::clone(&meter))));
    let outcome = tokio::select! {
        outcome = stream::run(config, args.once, listener, Arc::clone(&meter), stopping.clone()) => outcome,
        // A window that is not acknowledged is sent again at the next start.
        () = overdue(&stopping) => Ok(StreamOutcome { totals: meter.totals(), is_complete: false }),
    };
    signals.abort();
    if let Some(progress) = progress {
        progress.abort();
        let _ = progress.await;
    }
    Ok(outcome?)
}

/// Waits until the stream must stop, and then for [`LAST`].
async fn overdue(stopping: &Stopping) {
    stopping.stopped().await;
    tokio::time::sleep(LAST).await;
}

/// Stops the stream at SIGTERM and SIGINT.
async fn signals(stopping: Stopping) {
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stopping.stop();
}

/// Shows the totals of the stream on a terminal, until it is dropped.
async fn progress(meter: Arc<StreamMeter>) {
    let style =
        ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a constant template");
    let bar = ProgressBar::new_spinner().with_style(style);
    loop {
        bar.set_message(told(&meter.totals()));
        bar.tick();
        tokio::time::sleep(TICK).await;
    }
}

fn summary(outcome: &StreamOutcome) -> String {
    let told = told(&outcome.totals);
    if outcome.is_complete {
        told
    } else {
        format!("{told}; some are missing: a daemon or a receiver did not answer")
    }
}

fn told(totals: &StreamTotals) -> String {
    let StreamTotals {
        windows,
        repeats,
        bytes,
        gaps,
        lost,
        refused,
        failures,
    } = totals;
    let mut text = format!("sent {windows} windows ({bytes} bytes)");
    for (count, what) in [
        (*repeats, "there already"),
        (*refused, "that the receiver refuses in whole or in part"),
        (*failures, "failed attempts"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    if *gaps > 0 {
        text.push_str(&format!(", {gaps} gaps of {lost} lost windows"));
    }
    text
}

/// Starts logging to stderr. `--log-level`, else `RUST_LOG`, chooses the level, `info` by default.
fn start_logging(args: &StreamArgs) -> anyhow::Result<()> {
    let filter: Targets = match &args.log_level {
        Some(level) => level
            .parse()
            .with_context(|| format!("--log-level {level}"))?,
        None => std::env::var("RUST_LOG")
            .ok()
            .and_then(|levels| levels.parse().ok())
            .unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO)),
    };
    let is_terminal = io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || LogWriter { is_terminal })
        .log_internal_errors(false)
        .with_ansi(is_terminal);
    match args.log_format {
        StreamLogFormat::Text => subscriber.finish().with(filter).init(),
        StreamLogFormat::Json => subscriber.json().finish().with(filter).init(),
    }
    Ok(())
}
