//! The drawing of the live view.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, TableState};

use crate::output::table::{escaped, printable};
use crate::output::units;
use crate::top::fit::{fit, room_of_key};
use crate::top::keys::{KEYS, name};
use crate::top::series::{HISTORY, TopSeries};
use crate::top::state::{Column, ProbeRow, TopState, TopView};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The number of columns for a sparkline.
const SPARK: u16 = 20;
/// The least columns of a screen for sparklines beside the table.
const ROOM: u16 = 100;
const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const SPARKS: Style = Style::new().fg(Color::Cyan);
const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
/// A selection that is visible without colours as well.
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

pub fn draw(frame: &mut Frame<'_>, state: &TopState) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    header(frame, state, head);
    match state.view {
        TopView::Probes => {
            let rows = u16::try_from(state.rows().len())
                .unwrap_or(u16::MAX)
                .saturating_add(2);
            let probes = rows.min(body.height / 2).max(4);
            let [top, bottom] =
                Layout::vertical([Constraint::Length(probes), Constraint::Fill(1)]).areas(body);
            self::probes(frame, state, top);
            entries(frame, state, bottom);
        }
        TopView::Entries => entries(frame, state, body),
    }
    footer(frame, state, foot);
    if state.help {
        help(frame);
    }
}

fn header(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let (packets, share) = state.total();
    let mut line = vec![
        Span::styled("twinprobe top", TITLE),
        Span::raw(format!(
            "  {} packets/s  {} of a CPU",
            units::count(packets),
            percent(share)
        )),
        Span::styled(
            format!(
                "  every {}  {}",
                units::nanoseconds(state.interval.as_nanos() as f64),
                state.server
            ),
            DIM,
        ),
    ];
    if state.paused {
        line.push(Span::styled("  paused", ALARM));
    }
    if let Some(error) = &state.error {
        line.push(Span::styled(format!("  {}", printable(error)), ALARM));
    }
    frame.render_widget(Line::from(line), area);
}

fn probes(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let rows = state.rows();
    let chosen = state
        .selected()
        .and_then(|selected| rows.iter().position(|row| row.name == selected.name));
    let mark = |column: Column, title: &str| {
        let arrow = if state.reversed { "▲" } else { "▼" };
        if state.sort == column {
            format!("{title}{arrow}")
        } else {
            title.to_owned()
        }
    };
    let head = Row::new([
        Cell::from(mark(Column::Name, "PROBE")),
        Cell::from("STATE"),
        right(mark(Column::Packets, "PACKETS/S")),
        right(mark(Column::Time, "NS/PACKET")),
        right(mark(Column::Share, "CPU")),
        Cell::from(""),
        Cell::from("ON"),
    ])
    .style(TITLE);
    let widest = rows
        .iter()
        .map(|row| row.name.chars().count())
        .max()
        .unwrap_or_default()
        .clamp(12, 32) as u16;
    let widths = [
        Constraint::Length(widest),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(spark(area)),
        Constraint::Fill(1),
    ];
    let title = if state.filter.is_empty() || state.view != TopView::Probes {
        String::new()
    } else {
        format!(" /{} ", state.filter)
    };
    let table = Table::new(rows.iter().copied().map(probe_row), widths)
        .header(head)
        .row_highlight_style(SELECTED)
        .block(
            Block::new()
                .borders(Borders::BOTTOM)
                .title_bottom(title)
                .border_style(DIM),
        );
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(chosen));
}

/// Returns the row of a probe in the table of probes.
fn probe_row(row: &ProbeRow) -> Row<'static> {
    // The time in a trial is an estimate of the cost of packets.
    let time = row
        .time
        .map(|(time, measured)| format!("{}{time:.0}", if measured { "" } else { "~" }));
    let state = if row.state == "running" {
        Style::new()
    } else {
        ALARM
    };
    Row::new([
        Cell::from(row.name.clone()),
        Cell::from(Span::styled(row.state.clone(), state)),
        right(row.packets.map_or_else(dash, units::count)),
        right(time.unwrap_or_else(dash)),
        right(row.share().map_or_else(dash, percent)),
        Cell::from(Span::styled(sparkline(&row.history), SPARKS)),
        Cell::from(printable(row.reason.as_ref().unwrap_or(&row.places))),
    ])
}

fn entries(frame: &mut Frame<'_>, state: &TopState, mut area: Rect) {
    let Some(row) = state.selected() else {
        let none = "no probes; `twinprobe apply --probe top-talkers --interface IFACE` deploys one";
        return frame.render_widget(Paragraph::new(none), area);
    };
    let entries = state.entries();
    let head = Row::new([
        Cell::from(format!("{}: {} entries", row.name, entries.len())),
        right("VALUE".to_owned()),
        right("RATE".to_owned()),
        Cell::from(""),
    ]);
    if row.waits() {
        let [line, rest] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        let hint = "These are the counts of the last window, which somebody has closed: an interval in the configuration gives rates.";
        frame.render_widget(Line::styled(hint, DIM), line);
        area = rest;
    }
    let shown = entries.iter().skip(if state.view == TopView::Entries {
        state.scroll
    } else {
        0
    });
    let shown: Vec<&TopSeries> = shown.take(area.height.into()).copied().collect();
    let widest = shown
        .iter()
        .map(|series| series.value.to_string().len())
        .max()
        .unwrap_or_default();
    let value = widest.clamp(5, 20) as u16;
    // Three gaps, and the rate.
    let name = usize::from(area.width.saturating_sub(value + 12 + spark(area) + 3));
    let cells = |series: &&TopSeries| {
        let rate = series.rate.map(|rate| units::rate(&series.family, rate));
        let entry = escaped(&series.name, usize::MAX);
        let room = room_of_key(&series.field, name);
        let entry = state
            .names
            .as_ref()
            .map_or(entry.clone(), |names| names.beside(&entry, room));
        Row::new([
            Cell::from(fit(&entry, &series.field, name)),
            right(format!("{}", series.value)),
            right(rate.unwrap_or_else(dash)),
            Cell::from(Span::styled(sparkline(&series.history), SPARKS)),
        ])
    };
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(value),
        Constraint::Length(12),
        Constraint::Length(spark(area)),
    ];
    let table = Table::new(shown.iter().map(cells), widths).header(head.style(TITLE));
    frame.render_widget(table, area);
}

fn footer(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    if state.typing {
        return frame.render_widget(
            Line::from(format!("/{}█  enter keeps it, esc drops it", state.filter)),
            area,
        );
    }
    let mut line = Line::default();
    for (code, _, word, help) in KEYS.iter().filter(|(.., help)| !help.is_empty()) {
        line.push_span(Span::styled(name(*code), TITLE));
        // A key without a word shares the word of the next key.
        let word = if word.is_empty() && !help.is_empty() {
            " ".to_owned()
        } else {
            format!(" {word}  ")
        };
        line.push_span(Span::styled(word, DIM));
    }
    frame.render_widget(line, area);
}

fn help(frame: &mut Frame<'_>) {
    let keys = KEYS.iter().filter(|(.., help)| !help.is_empty());
    let lines: Vec<Line<'_>> = keys
        .map(|(code, .., words)| Line::from(format!(" {:>6}  {words}", name(*code))))
        .collect();
    let area = frame.area();
    let [width, height] = [
        46.min(area.width),
        (lines.len() as u16 + 2).min(area.height),
    ];
    let area = Rect::new(
        (area.width - width) / 2,
        (area.height - height) / 2,
        width,
        height,
    );
    frame.render_widget(Clear, area);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" keys ")),
        area,
    );
}

/// The columns for sparklines: none where keys need the room.
const fn spark(area: Rect) -> u16 {
    if area.width < ROOM { 0 } else { SPARK }
}

/// Returns a cell whose text stands at the right, as numbers do.
fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

fn dash() -> String {
    "-".to_owned()
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 10.0 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.2} %")
    }
}

/// Draws the newest numbers, the largest one as a full block.
fn sparkline(history: &VecDeque<u64>) -> String {
    let newest = history.iter().skip(
        history
            .len()
            .saturating_sub(usize::from(SPARK).min(HISTORY)),
    );
    let largest = newest.clone().max().copied().unwrap_or_default().max(1);
    let bar =
        |number: &u64| BARS[(number * (BARS.len() as u64 - 1)).div_ceil(largest).min(7) as usize];
    newest.map(bar).collect()
}

#[cfg(test)]
mod tests;
