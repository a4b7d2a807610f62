//! The keys of the live view, in one table.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    Up,
    Down,
    Open,
    Back,
    Sort,
    Reverse,
    Filter,
    Pause,
    Faster,
    Slower,
    Help,
}

/// A key with its action, the word below the view, and the words of the help. Keys without words
/// repeat another key's action.
pub const KEYS: &[(KeyCode, Action, &str, &str)] = &[
    (KeyCode::Up, Action::Up, "", "the probe or entry above"),
    (KeyCode::Char('k'), Action::Up, "", ""),
    (
        KeyCode::Down,
        Action::Down,
        "select",
        "the probe or entry below",
    ),
    (KeyCode::Char('j'), Action::Down, "", ""),
    (
        KeyCode::Enter,
        Action::Open,
        "entries",
        "all entries of the probe",
    ),
    (KeyCode::Esc, Action::Back, "back", "back to the probes"),
    (
        KeyCode::Char('s'),
        Action::Sort,
        "sort",
        "sort by the next column",
    ),
    (
        KeyCode::Char('r'),
        Action::Reverse,
        "reverse",
        "reverse the order",
    ),
    (
        KeyCode::Char('/'),
        Action::Filter,
        "filter",
        "show only names with these letters",
    ),
    (
        KeyCode::Char(' '),
        Action::Pause,
        "pause",
        "pause and continue",
    ),
    (KeyCode::Char('p'), Action::Pause, "", ""),
    (KeyCode::Char('+'), Action::Faster, "", "refresh more often"),
    (
        KeyCode::Char('-'),
        Action::Slower,
        "interval",
        "refresh less often",
    ),
    (KeyCode::Char('?'), Action::Help, "help", "this help"),
    (KeyCode::Char('q'), Action::Quit, "quit", "quit"),
];

/// Returns the action of a key.
pub fn action(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
    }
    KEYS.iter()
        .find(|(code, ..)| *code == key.code)
        .map(|(_, action, ..)| *action)
}

/// Returns the name of a key.
pub fn name(code: KeyCode) -> String {
    match code {
        KeyCode::Char(' ') => "space".to_owned(),
        KeyCode::Char(letter) => letter.to_string(),
        KeyCode::Up => "↑".to_owned(),
        KeyCode::Down => "↓".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}
