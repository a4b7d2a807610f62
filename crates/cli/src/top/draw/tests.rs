use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use serde_json::{Value, json};

use super::*;
use crate::top::feed::{InterfaceCounters, Look};

fn status(name: &str, nanoseconds: u64) -> Value {
    json!({ "name": name, "state": "running", "revision": 1, "created": "", "programs": {}, "warnings": [],
            "windows": { "retained": 0, "bytes": 0, "oldest": null, "newest": null, "lost": 0, "damaged": 0 },
            "config": { "ingress": { "metrics": [{ "name": "flow_packets" }] } },
            "cost": { "directions": { "ingress": { "ns_per_packet": nanoseconds, "noise_ns": 1, "frame": "udp",
                "instructions": 5, "verified": 5, "stack_bytes": 0 } }, "map_bytes": 5 },
            "interfaces": [{ "interface": "ux0", "state": "attached", "direction": "ingress", "hook": "xdp", "mode": "native" }] })
}

fn look(packets: u64, elapsed: Option<u64>) -> Result<Look, String> {
    let page = format!(
        "flow_packets_total{{probe=\"dns\",src=\"10.0.0.1\"}} {packets}\nflow_packets_total{{probe=\"dns\",src=\"10.0.0.2\"}} 5\n\
             flow_packets_total{{probe=\"vlan\"}} 7\n"
    );
    let probes = [status("dns", 100), status("vlan", 20)]
        .map(|status| serde_json::from_value(status).unwrap());
    let interfaces = BTreeMap::new();
    Ok(Look {
        probes: probes.to_vec(),
        page,
        elapsed: elapsed.map(Duration::from_secs),
        interfaces,
    })
}

fn screen(state: &TopState) -> String {
    let mut terminal = Terminal::new(TestBackend::new(110, 16)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let lines = buffer
        .content
        .chunks(110)
        .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
    lines
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

#[test]
fn keys_are_whole_at_eighty_columns() {
    let mut state = TopState::new("unix:/s".to_owned(), Duration::from_secs(1));
    let mut long = look(1_000, None).unwrap();
    let key = "source=2001:db8:1:2:3:4:5:6";
    long.page = "flow_packets_total{probe=\"dns\",direction=\"ingress\",source=\"2001:db8:1:2:3:4:5:6\"} 123456789\n"
            .to_owned();
    state.look(Ok(long));
    let mut terminal = Terminal::new(TestBackend::new(80, 16)).unwrap();
    terminal.draw(|frame| draw(frame, &state)).unwrap();
    let text: String = terminal
        .backend()
        .buffer()
        .content
        .iter()
        .map(|cell| cell.symbol())
        .collect();
    assert!(text.contains(key) && text.contains("123456789"), "{text}");
    assert!(text.contains("(xdp native)"), "{text}");
}

#[test]
fn a_packet_counts_once_however_many_probes_see_it() {
    let mut state = TopState::new("unix:/s".to_owned(), Duration::from_secs(1));
    let with = |received: u64, elapsed: Option<u64>| {
        let mut look = look(received, elapsed).unwrap();
        for probe in &mut look.probes {
            probe.interfaces[0].ifindex = Some(7);
        }
        let counters = InterfaceCounters {
            index: 7,
            received,
            sent: 0,
        };
        look.interfaces = BTreeMap::from([("ux0".to_owned(), counters)]);
        Ok(look)
    };
    state.look(with(1_000, None));
    state.look(with(3_000, Some(2)));
    assert_eq!(
        state.total().0,
        1_000.0,
        "two probes are at the same interface"
    );
    state.look(look(5_000, Some(1)));
    assert_eq!(
        state.total().0,
        2_000.0,
        "without counters, the probe that counts most"
    );
}

fn press(state: &mut TopState, code: KeyCode) -> bool {
    state.key(KeyEvent::from(code))
}

#[test]
fn probes_and_their_entries_are_shown_with_rates() {
    let mut state = TopState::new("unix:/s".to_owned(), Duration::from_secs(1));
    state.look(look(1_000, None));
    state.look(look(2_001_000, Some(2)));
    let text = screen(&state);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("twinprobe top  1.00M packets/s  10 % of a CPU"),
        "{text}"
    );
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(
        words[..5],
        ["dns", "running", "1.00M", "~100", "10"],
        "{text}"
    );
    assert!(
        lines[2].ends_with("ux0 (xdp native)") && lines[2].contains('█'),
        "{text}"
    );
    assert!(
        text.contains("flow_packets_total src=10.0.0.1") && text.contains("1.00M/s"),
        "{text}"
    );
}

#[test]
fn keys_sort_filter_pause_and_drill_down() {
    let mut state = TopState::new("unix:/s".to_owned(), Duration::from_secs(1));
    state.look(look(1_000, None));
    state.look(look(2_000, Some(1)));
    let first = |state: &TopState| state.rows()[0].name.clone();
    assert_eq!(first(&state), "dns");
    press(&mut state, KeyCode::Char('r'));
    assert_eq!(first(&state), "vlan");
    press(&mut state, KeyCode::Char('r'));
    press(&mut state, KeyCode::Down);
    assert_eq!(state.selected().unwrap().name, "vlan");
    for key in ['/', 'd', 'q'] {
        press(&mut state, KeyCode::Char(key));
    }
    assert_eq!((state.filter.as_str(), state.rows().len()), ("dq", 0));
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.rows().len(), 1);
    press(&mut state, KeyCode::Esc);
    press(&mut state, KeyCode::Up);
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.view, TopView::Entries);
    assert!(screen(&state).contains("dns: 2 entries"));
    press(&mut state, KeyCode::Char(' '));
    state.look(look(9_000, Some(1)));
    assert!(screen(&state).contains("paused") && screen(&state).contains("2000"));
    press(&mut state, KeyCode::Char('?'));
    assert!(screen(&state).contains("refresh more often"));
    press(&mut state, KeyCode::Char('?'));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.view, TopView::Probes);
    state.look(Err("could not reach the daemon".to_owned()));
    assert!(screen(&state).contains("could not reach the daemon"));
    assert!(!press(&mut state, KeyCode::Char('q')), "q ends the view");
}

#[test]
fn a_narrow_screen_and_no_probes_are_no_panic() {
    let state = TopState::new(String::new(), Duration::from_secs(1));
    for (width, height) in [(1, 1), (10, 3), (40, 5), (300, 90)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &state)).unwrap();
    }
    assert!(screen(&state).contains("no probes"));
}
