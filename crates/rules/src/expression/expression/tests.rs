use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Expression, ExpressionBudget, NoValue};
use crate::shapes::shape;
use crate::view::WindowView;

fn window(seq: u64, syn: u64) -> Value {
    json!({
        "window": { "seq": seq, "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:02Z", "lost_windows": 1 },
        "approximate": "a reason",
        "ingress": {
            "flags": { "entries": [
                { "key": "SYN", "value": { "packets_total": syn, "bytes_total": 60 * syn } },
                { "key": "ACK", "value": { "packets_total": 7, "bytes_total": 9000 } },
            ] },
            "flows": { "entries": [
                { "key": { "source": "10.0.0.1", "port": 53 }, "value": 5 },
                { "key": { "source": "10.0.0.2", "port": 53 }, "value": 6 },
                { "key": { "source": "10.0.0.3", "port": 80 }, "value": 1 },
            ] },
            "latency": { "histogram": true, "p50": 4, "p95": 1023, "p99": 2047, "entries": [] },
            "empty": { "entries": [], "like": { "key": "", "value": 0 } },
        },
    })
}

fn holds(text: &str) -> Result<bool, String> {
    let (first, second) = (window(1, 10), window(2, 100));
    let shape = shape(&first);
    let expression = Expression::condition(text, &shape, &mut ExpressionBudget::default())
        .map_err(|fault| format!("{}:{}: {}", fault.line, fault.column, fault.message))?;
    let held = expression.holds(&WindowView::new(&second)?, Some(&WindowView::new(&first)?))?;
    held.map_err(|missing| missing.to_string())
}

#[test]
fn expressions_read_windows() {
    for text in [
        "sum(ingress.flags, 'SYN') > 20.0 * window.seconds",
        "sum(ingress.flags, 'SYN') == 100 && sum(ingress.flags) == 107",
        "sum(ingress.flags, 'bytes_total') == 15000",
        "sum(ingress.flags, 'SYN', 'bytes_total') == 6000",
        "sum(ingress.flags, 'FIN') == 0",
        "max(ingress.flags) == 100 && min(ingress.flags) == 7 && count(ingress.flags) == 2",
        "rate(ingress.flags, 'SYN') == 50",
        "sum(ingress.flags, 'SYN') >= 10 * sum(previous.ingress.flags, 'SYN')",
        "window.seq == 2 && previous.window.seq == 1 && window.lost_windows == 1 && window.approximate",
        "top(ingress.flags) == 'SYN' && top(ingress.flags, 'bytes_total') == 'ACK'",
        "top(ingress.flows).source == '10.0.0.2' && top(ingress.flows, 'port=80').source.endsWith('.3')",
        "top(ingress.flows).source in ['10.0.0.1', '10.0.0.2']",
        "sum(ingress.flows, 'port=53') == 11",
        "p50(ingress.latency) == 4 && p95(ingress.latency) == 1023 && p99(ingress.latency) < 1.0e9",
        "sum(ingress.empty) == 0 && max(ingress.empty) == 0 && top(ingress.empty) == ''",
        "(count(ingress.flags) > 1 ? 1 : 2) == 1",
        "!(window.seconds < 2)\n|| -window.seconds > 0",
    ] {
        assert_eq!(holds(text), Ok(true), "{text}");
    }
    assert_eq!(holds("sum(ingress.flags, 'SYN') > 100"), Ok(false));
}

#[test]
fn what_needs_the_window_before_does_not_hold_without_it() {
    let only = window(1, 10);
    let shape = shape(&only);
    let mut budget = ExpressionBudget::default();
    let expression =
        Expression::condition("sum(previous.ingress.flags) < 1e9", &shape, &mut budget);
    let expression = expression.expect("an expression");
    let held = expression.holds(&WindowView::new(&only).expect("a window"), None);
    assert_eq!(held, Ok(Err(NoValue::Previous)));
}

/// A number beyond all bounds would exceed each limit, and "not a number" differs from each.
#[test]
fn divisions_by_zero_have_no_value() {
    for text in [
        "1 / sum(ingress.empty) > 0",
        "-1 / sum(ingress.empty) < 0",
        "sum(ingress.empty) / sum(ingress.empty) > 1",
        "sum(ingress.empty) / sum(ingress.empty) != 1",
        "!(sum(ingress.empty) / count(ingress.empty) > 1)",
        "1 / (1 / sum(ingress.empty)) == 0",
        "sum(ingress.empty) == 0 && 1 / sum(ingress.empty) > 1",
        "1 / sum(ingress.empty) > 1 ? true : true",
        "1e308 * 10 > 1",
        "1e308 + 1e308 - 1e308 > 1",
    ] {
        assert_eq!(holds(text), Err(NoValue::Number.to_string()), "{text}");
    }
    for text in [
        "sum(ingress.empty) > 0 && 1 / sum(ingress.empty) > 1",
        "1 / sum(ingress.empty) > 1 && sum(ingress.empty) > 0",
        "sum(ingress.empty) == 0 ? false : 1 / sum(ingress.empty) > 1",
        "9223372036854775807 * 2 < 9223372036854775807",
        "7 / 2 == 3",
    ] {
        assert_eq!(holds(text), Ok(false), "{text}");
    }
    // The evaluation recurses once for each of these operators.
    for sign in ["/", "*", "-"] {
        assert_eq!(
            holds(&format!("1{} > 2", format!("{sign}1").repeat(60))),
            Ok(false),
            "{sign}"
        );
    }
}

#[test]
fn a_window_without_a_length_has_no_rate() {
    let mut only = window(1, 10);
    only["window"]["duration_ns"] = json!(0);
    let shape = shape(&only);
    for (text, expected) in [
        ("rate(ingress.flags) > 1", Err(NoValue::Number)),
        ("!(rate(ingress.empty) > 1)", Err(NoValue::Number)),
        ("window.seconds > 0 && rate(ingress.flags) > 1", Ok(false)),
    ] {
        let expression = Expression::condition(text, &shape, &mut ExpressionBudget::default());
        let view = WindowView::new(&only).expect("a window");
        assert_eq!(
            expression.expect(text).holds(&view, None),
            Ok(expected),
            "{text}"
        );
    }
}

#[test]
fn mistakes_have_their_place() {
    for (text, said) in [
        ("", "1:1: the expression is empty"),
        ("sum(ingress.flags", "1:18: "),
        (
            "1 == 1 && sum(ingress.flag) > 1",
            "1:22: ingress has no metric \"flag\"; it has flags, flows, latency, empty",
        ),
        (
            "sum(ingress.flags, 'SYN', 'packets') > 1",
            "1:27: flags has no field \"packets\"; it has packets_total, bytes_total",
        ),
        (
            "sum(egress.flags) > 1",
            "1:11: the probe has no metric in egress",
        ),
        (
            "sum(ingress.flags)",
            "1:1: a condition is true or false, and this is a number",
        ),
        (
            "true &&\n  sum(ingress.flags) > 'a'",
            "2:22: > compares two of one kind, not a number and a text",
        ),
        ("window.length > 1", "1:7: a window has seconds"),
        (
            "ingress.flags > 1",
            "1:8: flags is a metric: take a number from it",
        ),
        (
            "sum(ingress.flows, 'port') > 1",
            "1:20: flows has no fields, and keys of several parts: write source=VALUE or port=VALUE",
        ),
        (
            "sum(ingress.flows, 'port=http') > 1",
            "\"http\" can't be the port of a key",
        ),
        (
            "sum(ingress.flows, 'ports=1') > 1",
            "write source=VALUE or port=VALUE",
        ),
        (
            "top(ingress.flows).nopart == 'x'",
            "1:19: the keys of flows have no part \"nopart\"; they have source, port",
        ),
        (
            "top(ingress.flows, 'port=80').source.x == ''",
            "have no part \"source.x\"",
        ),
        (
            "top(ingress.flags).nopart == 'x'",
            "the keys of flags have no parts; leave .nopart out",
        ),
        (
            "true && 'x'.startsWith()",
            "1:23: startsWith follows a text and takes one text",
        ),
        ("'x'.endsWith('x', 'y')", "endsWith follows a text"),
        ("contains('x', 'x')", "contains follows a text"),
        ("'x'.contains(1)", "contains follows a text"),
        (
            "p95(ingress.latency, '3') > 1",
            "1:22: p95 takes no selector",
        ),
        ("p95(ingress.flags) > 1", "1:12: flags is not a histogram"),
        ("answer0 == 1", "\"answer0\" is not known"),
        (
            "[1].map(x, x * 2) == [2]",
            "macros are not possible in rules",
        ),
        ("has(window.seq)", "rules have no `has`"),
        ("size('a') > 0", "\"size\" is not a function of rules"),
        ("sum(ingress.flags).value > 1", "sum is a number"),
        ("null == null", "bytes and null are not possible"),
    ] {
        let message = holds(text).expect_err(text);
        assert!(message.contains(said), "{text}: {message}");
    }
}

/// These texts of at most 1 KiB make the parser, or the reader of its tree, recurse the deepest.
#[test]
fn deep_expressions_are_refused() {
    let long = format!("1{} == 1", "+1".repeat(505));
    for text in [
        long,
        format!("{}1{} == 1", "(".repeat(500), ")".repeat(500)),
        format!("{}1{} == 1", "[".repeat(500), "]".repeat(500)),
        format!("{}true", "true?true:".repeat(100)),
        format!("window{}", ".a".repeat(500)),
        format!("{}1", "-".repeat(1000)),
        "true".repeat(400),
    ] {
        assert!(holds(&text).is_err(), "{text}");
    }
    let message = holds(&"[".repeat(400)).expect_err("deep");
    assert_eq!(
        message,
        "1:97: the expression is too deeply nested; the limit is 96 levels"
    );
    // The parser drops pairs of `!`, so the tree is not deep.
    assert_eq!(holds(&format!("{}true", "!".repeat(1019))), Ok(false));
    let questions: Vec<_> = (0..17)
        .map(|key| format!("sum(ingress.flags, '{key}') > 1.0"))
        .collect();
    let message = holds(&questions.join(" || ")).expect_err("too many");
    assert!(message.contains("more than 16 numbers"), "{message}");
}

proptest! {
    /// No text ends the process, and an accepted one can be evaluated or says why not.
    #[test]
    fn any_text_is_judged(text in "[a-z0-9 .,()'&|<>=!?:+*/\\-\\[\\]{}]{0,80}") {
        let _ = holds(&text);
    }

    #[test]
    fn any_mixture_of_parts_is_judged(parts in prop::collection::vec(prop::sample::select(vec![
        "sum(ingress.flags, 'SYN')", "window.seconds", "previous.window.seq", "top(ingress.flows)", ".source", " + ", " / ",
        " > ", " == ", " && ", " ? ", " : ", "(", ")", "0", "1e308", "'a'", "true", "!", "-", " in ", "[", "]", ".contains(",
    ]), 0..24)) {
        let _ = holds(&parts.concat());
    }
}
