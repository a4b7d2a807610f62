//! `twinprobe top`.

use std::net::Ipv4Addr;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use twinprobe_client::{Client, Server};
use twinprobe_ebpf_common::finding::with_causes;

use crate::commands::read::watch::duration;
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::top::draw::draw;
use crate::top::feed::Feed;
use crate::top::names::LiveNames;
use crate::top::state::TopState;

/// Shows all probes live: packets, time per packet, share of a CPU, and the entries that count
/// most. `?` lists the keys.
#[derive(Debug, Args)]
pub struct Top {
    /// Time between two updates of the screen
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    interval: Duration,
    /// Show the names of addresses that the daemon finds, where keys leave room
    #[arg(long)]
    names: bool,
}

impl Top {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        let server = session.fleet.nodes()[0].server.clone();
        let mut feed = Feed::new(client, matches!(server, Server::Unix(_)));
        // If the daemon can't be reached at the start, the command fails before it changes the
        // screen.
        let first = feed.look().await?;
        let mut state = TopState::new(session.fleet.nodes()[0].name.clone(), self.interval);
        state.look(Ok(first));
        if self.names {
            let kinds = client
                .names(&[Ipv4Addr::LOCALHOST.to_string()], &[])
                .await?
                .read()?
                .kinds;
            if kinds.is_empty() {
                return Err(CommandError::NoNames);
            }
            state.names = Some(LiveNames::default());
        }
        let mut ended = signal(SignalKind::terminate()).map_err(CommandError::Signal)?;
        let mut terminal = ratatui::try_init().map_err(CommandError::Terminal)?;
        let shown = tokio::select! {
            shown = show(&mut terminal, &mut state, &mut feed, client) => shown,
            _ = ended.recv() => Ok(()),
        };
        ratatui::restore();
        shown
    }
}

/// Draws until a key ends the view.
async fn show(
    terminal: &mut DefaultTerminal,
    state: &mut TopState,
    feed: &mut Feed<'_>,
    client: &Client,
) -> Result<(), CommandError> {
    let mut events = events();
    // The view does not wait for names, and has one request under way.
    let mut names = JoinSet::new();
    let mut last = Instant::now();
    loop {
        terminal
            .draw(|frame| draw(frame, state))
            .map_err(CommandError::Terminal)?;
        tokio::select! {
            event = events.recv() => match event {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    if !state.key(key) {
                        return Ok(());
                    }
                }
                Some(_) => {}
                // The terminal was closed.
                None => return Ok(()),
            },
            () = sleep_until(last + state.interval) => {
                last = Instant::now();
                let look = feed.look().await;
                state.look(look.map_err(|error| with_causes(&error)));
                let wanted = if names.is_empty() { state.unnamed() } else { Vec::new() };
                if !wanted.is_empty() {
                    let client = client.clone();
                    names.spawn(async move { client.names(&wanted, &[]).await?.read() });
                }
            }
            // Without an answer the addresses are asked for again.
            Some(answer) = names.join_next() => {
                if let (Some(known), Ok(Ok(list))) = (&mut state.names, answer) {
                    known.take(list, std::time::Instant::now());
                }
            }
        }
    }
}

/// Returns the events of the terminal, for which a thread waits.
fn events() -> UnboundedReceiver<Event> {
    let (send, receive) = unbounded_channel();
    let read = move || while event::read().is_ok_and(|event| send.send(event).is_ok()) {};
    // Without the thread the view takes no keys. It ends, as when the terminal is closed.
    let _ = std::thread::Builder::new().name("keys".into()).spawn(read);
    receive
}
