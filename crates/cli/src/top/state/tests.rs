use serde_json::json;

use super::*;

#[test]
fn without_counters_of_interfaces_the_heading_has_the_rate_of_windows() {
    let status = json!({ "name": "p", "state": "running", "revision": 1, "created": "", "programs": {},
            "warnings": [], "interfaces": [],
            "windows": { "retained": 0, "bytes": 0, "oldest": null, "newest": null, "lost": 0, "damaged": 0 },
            "config": { "window": { "interval": "2s" },
                "ingress": { "metrics": [{ "name": "packets", "snapshot": true }] } } });
    let status: ProbeStatus = serde_json::from_value(status).unwrap();
    let mut state = TopState::new("unix:/s".to_owned(), Duration::from_secs(1));
    let mut rate = |packets: u64, ends: u64| {
        let page = format!(
            "twinprobe_windows_closed_total{{probe=\"p\",by=\"schedule\"}} {ends}\n\
                 packets_total{{probe=\"p\",direction=\"ingress\"}} {packets}\n"
        );
        let elapsed = Some(Duration::from_secs(1));
        state.look(Ok(Look {
            probes: vec![status.clone()],
            page,
            elapsed,
            ..Look::default()
        }));
        state.total().0
    };
    let seen = [(0, 5), (600, 6), (600, 6), (1_200, 7), (1_200, 7)]
        .map(|(packets, ends)| rate(packets, ends));
    assert_eq!(seen, [0.0, 300.0, 300.0, 300.0, 300.0]);
}
