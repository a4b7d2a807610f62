use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::json;
use twinprobe_windows::ClosedBy;

use super::*;

fn facts(name: &str) -> ProbeFacts {
    let event = EventStatus {
        direction: Direction::Ingress,
        metric: "syns".into(),
        interface: None,
        delivered: 5,
        lost: None,
        missed: 1,
        clients: 2,
    };
    let windows = WindowStatistics {
        retained: 3,
        bytes: 4096,
        lost: 2,
        damaged: 1,
        ..WindowStatistics::default()
    };
    let (direction, metric) = (Direction::Ingress, "flows".to_owned());
    let sums = vec![SumStatus {
        direction,
        metric,
        entries: 7,
        max_entries: 8,
        dropped: 3,
    }];
    let cost = serde_json::from_value(json!({
        "map_bytes": 4096,
        "directions": { "ingress": { "ns_per_packet": 42, "noise_ns": 3, "frame": "tcp_syn",
            "instructions": 12, "verified": 20, "stack_bytes": 8 },
            "egress": { "instructions": 5, "verified": 6, "stack_bytes": 0 } },
        "live": [{ "interface": "eth0", "direction": "ingress", "hook": "xdp", "ns_per_packet": 30.5,
            "by": "samples", "dispatcher_ns_per_packet": 61.0, "packets": 7, "measured": "2026-11-21T10:00:00Z" }],
    }));
    let cost = cost.unwrap();
    let attachment = |interface: &str, hook, repairs| AttachmentFacts {
        interface: interface.into(),
        hook,
        attached: repairs < 9,
        repairs,
    };
    let attachments = vec![
        attachment("eth0", Hook::Xdp, 3),
        attachment("tap*", Hook::TcEgress, 9),
    ];
    let origin = DocumentOrigin {
        node: "gw-1".into(),
        instance: "0a".into(),
        labels: [].into(),
    };
    ProbeFacts {
        name: name.into(),
        origin: Arc::new(origin),
        samples: [(Direction::Egress, 100)].into(),
        budgets: [(Direction::Ingress, 500)].into(),
        lags: vec![("archive".into(), 2)],
        running: true,
        windows,
        sums,
        cost: Some(cost),
        events: vec![event],
        attachments,
        approximate: Some("a card takes tags out".into()),
        pods: BTreeMap::new(),
    }
}

#[track_caller]
fn assert_lines(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(
            page.lines().any(|l| l == *line),
            "{line} is missing in:\n{page}"
        );
    }
}

#[test]
fn what_was_counted_is_shown() {
    let telemetry = Telemetry::default();
    let counters = telemetry.probe("flows");
    counters.closed(ClosedBy::Schedule, Duration::from_micros(15));
    counters.closed(ClosedBy::Read, Duration::from_secs(1));
    counters.close_failures.inc();
    counters.ticks_missed.inc_by(3);
    telemetry.probe("flows").read_failures.inc();
    telemetry.compiled(Duration::from_millis(60), true);
    let answer = |status| {
        telemetry
            .http
            .answered(&Method::GET, Some("/v1/probes"), status, Duration::ZERO);
    };
    answer(StatusCode::OK);
    answer(StatusCode::OK);
    telemetry.http.answered(
        &"BREW".parse().unwrap(),
        None,
        StatusCode::NOT_FOUND,
        Duration::ZERO,
    );
    let page = telemetry.render(&[
        facts("flows"),
        ProbeFacts {
            name: "other".into(),
            ..ProbeFacts::default()
        },
    ]);
    let version = format!(
        "twinprobe_build_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
    assert_lines(
        &page,
        &[
            &version,
            "twinprobe_windows_closed_total{probe=\"flows\",by=\"schedule\"} 1",
            "twinprobe_windows_closed_total{probe=\"flows\",by=\"request\"} 0",
            "twinprobe_window_close_failures_total{probe=\"flows\"} 1",
            "twinprobe_window_ticks_missed_total{probe=\"flows\"} 3",
            "twinprobe_probe_read_failures_total{probe=\"flows\"} 1",
            "twinprobe_quiesce_seconds_count{probe=\"flows\"} 2",
            "twinprobe_quiesce_seconds_bucket{le=\"+Inf\",probe=\"flows\"} 2",
            "# UNIT twinprobe_quiesce_seconds seconds",
            "twinprobe_compilation_seconds_count{outcome=\"accepted\"} 1",
            "twinprobe_http_requests_total{method=\"GET\",route=\"/v1/probes\",status=\"200\"} 2",
            "twinprobe_http_requests_total{method=\"other\",route=\"none\",status=\"404\"} 1",
            "twinprobe_probe_info{probe=\"flows\",node=\"gw-1\",instance=\"0a\"} 1",
            "twinprobe_probe_sample{probe=\"flows\",direction=\"egress\"} 100",
            "twinprobe_probes{state=\"running\"} 1",
            "twinprobe_probes{state=\"failed\"} 1",
            "twinprobe_windows_retained{probe=\"flows\"} 3",
            "twinprobe_windows_retained_bytes{probe=\"flows\"} 4096",
            "twinprobe_windows_lost_total{probe=\"flows\"} 2",
            "twinprobe_windows_damaged_total{probe=\"flows\"} 1",
            "twinprobe_probe_seconds_per_packet{probe=\"flows\",direction=\"ingress\"} 4.2e-8",
            "twinprobe_probe_max_seconds_per_packet{probe=\"flows\",direction=\"ingress\"} 5e-7",
            "twinprobe_windows_unacknowledged{probe=\"flows\",collector=\"archive\"} 2",
            "twinprobe_probe_live_packets{probe=\"flows\",interface=\"eth0\",direction=\"ingress\",hook=\"xdp\"} 7",
            "twinprobe_probe_instructions{probe=\"flows\",direction=\"ingress\"} 12",
            "twinprobe_probe_instructions{probe=\"flows\",direction=\"egress\"} 5",
            "twinprobe_probe_verified{probe=\"flows\",direction=\"ingress\"} 20",
            "twinprobe_probe_stack_bytes{probe=\"flows\",direction=\"ingress\"} 8",
            "twinprobe_probe_map_bytes{probe=\"flows\"} 4096",
            "twinprobe_probe_live_seconds_per_packet{probe=\"flows\",interface=\"eth0\",direction=\"ingress\",hook=\"xdp\"} 3.05e-8",
            "twinprobe_sum_entries{probe=\"flows\",direction=\"ingress\",metric=\"flows\"} 7",
            "twinprobe_sum_max_entries{probe=\"flows\",direction=\"ingress\",metric=\"flows\"} 8",
            "twinprobe_sum_dropped_total{probe=\"flows\",direction=\"ingress\",metric=\"flows\"} 3",
            "twinprobe_events_delivered_total{probe=\"flows\",direction=\"ingress\",metric=\"syns\"} 5",
            "twinprobe_event_clients{probe=\"flows\",direction=\"ingress\",metric=\"syns\"} 2",
            "twinprobe_attachments{probe=\"flows\",interface=\"eth0\",direction=\"ingress\",hook=\"xdp\"} 1",
            "twinprobe_attachments{probe=\"flows\",interface=\"tap*\",direction=\"egress\",hook=\"tc\"} 0",
            "twinprobe_attachments_repaired_total{probe=\"flows\",interface=\"eth0\",direction=\"ingress\",hook=\"xdp\"} 3",
        ],
    );
    for absent in [
        "twinprobe_events_lost_total{",
        "_per_packet{probe=\"flows\",direction=\"egress\"",
    ] {
        assert!(!page.contains(absent), "{absent}: {page}");
    }
    for name in [
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
    ] {
        assert!(
            page.lines()
                .any(|line| line.starts_with(&format!("{name} "))),
            "{name}: {page}"
        );
    }
}

#[test]
fn a_probe_that_is_gone_is_forgotten() {
    let telemetry = Telemetry::default();
    let gone = telemetry.probe("gone");
    telemetry.probe("kept").read_failures.inc();
    telemetry.forget("gone");
    gone.closed(ClosedBy::Read, Duration::ZERO);
    let page = telemetry.render(&[]);
    assert!(!page.contains("gone"), "{page}");
    assert_lines(
        &page,
        &["twinprobe_probe_read_failures_total{probe=\"kept\"} 1"],
    );
    telemetry.probe("gone");
    assert_lines(
        &telemetry.render(&[]),
        &["twinprobe_windows_closed_total{probe=\"gone\",by=\"read\"} 0"],
    );
}
