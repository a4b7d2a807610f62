//! A page about one table: the number of requests for its rows, and the rows that become samples.

use twinprobe_ebpf_common::{Direction, MapKind, TableLayout};

use super::*;
use crate::encode::openmetrics::samples::tests::record;

/// Returns a page about one hash of pairs, and the number of times that its rows are asked for.
/// Keys have padding.
fn page(keys: &[&[u8]], own: &str) -> (String, usize) {
    let key = record(2, &["a"]);
    let layout = TableLayout {
        kind: MapKind::Hash,
        key,
        value: record(2, &["x", "y"]),
        slots: 1,
        inner: None,
    };
    let metric = Arc::new(Metric::example("m", layout));
    let (mut page, mut out, mut asked) = (PageEncoder::of_one(&Head::default()), Vec::new(), 0);
    page.skipped_before(4);
    page.add_metric(&metric, Arc::default());
    page.begin(own, &mut Vec::new());
    while page.next_table(&mut out).is_some() {
        asked += 1;
        let (keys, values) = (keys.concat(), [1, 2].repeat(keys.len()));
        page.rows(
            &RawTable {
                keys,
                values,
                ..RawTable::default()
            },
            &mut out,
        );
    }
    page.finish(&mut out);
    (String::from_utf8(out).expect("UTF-8"), asked)
}

/// A struct of thousands of members has a family for each of them.
#[test]
fn a_table_of_many_families_is_asked_for_a_few_times() {
    const MEMBERS: usize = 2048;
    const ROWS: usize = 64;
    let names: Vec<String> = (0..MEMBERS).map(|member| format!("m{member}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let layout = TableLayout {
        kind: MapKind::Hash,
        key: record(1, &["a"]),
        value: record(MEMBERS, &names),
        slots: 1,
        inner: None,
    };
    let metric = Arc::new(Metric::example("m", layout));
    let values: Vec<u8> = (0..ROWS * MEMBERS).map(|at| (at % 251) as u8).collect();
    let table = RawTable {
        keys: (0..ROWS as u8).collect(),
        values,
        ..RawTable::default()
    };
    // Both directions have a part in each family.
    for directions in [&[Direction::Ingress][..], &Direction::ALL] {
        let (mut page, mut out, mut asked) = (PageEncoder::of_one(&Head::default()), Vec::new(), 0);
        for direction in directions {
            let metric = Metric::clone(&metric).with(|head| head.direction = *direction);
            page.add_metric(&Arc::new(metric), Arc::default());
        }
        page.begin("", &mut out);
        while page.next_table(&mut out).is_some() {
            asked += 1;
            page.rows(&table, &mut out);
        }
        page.finish(&mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(asked < 100, "{asked} times");
        let mut lines = text.lines();
        for member in 0..MEMBERS {
            assert_eq!(lines.next(), Some(&*format!("# TYPE m_m{member} gauge")));
            for direction in directions {
                for row in 0..ROWS {
                    let number = (row * MEMBERS + member) % 251;
                    let labels = format!("{{probe=\"\",direction=\"{direction}\",a=\"{row}\"}}");
                    assert_eq!(
                        lines.next(),
                        Some(&*format!("m_m{member}{labels} {number}"))
                    );
                }
            }
        }
    }
}

/// Returns the label `a` of each sample of the family `m_x`.
fn shown(text: &str) -> Vec<&str> {
    let samples = text
        .lines()
        .filter_map(|line| line.strip_prefix("m_x{")?.split_once(",a=\""));
    samples
        .filter_map(|(_, rest)| Some(rest.split_once('"')?.0))
        .collect()
}

#[test]
fn a_table_is_asked_for_once_for_each_family() {
    let (text, asked) = page(&[&[7, 0], &[7, 9], &[8, 1]], "");
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut lines = Vec::new();
    for (name, value) in [("x", 1), ("y", 2)] {
        for key in [
            "a=\"7\"",
            "a=\"7\",padding=\"0x09\"",
            "a=\"8\",padding=\"0x01\"",
        ] {
            lines.push(format!(
                "m_{name}{{probe=\"\",direction=\"ingress\",{key}}} {value}"
            ));
        }
    }
    lines.push("twinprobe_export_skipped_total 4".to_owned());
    assert_eq!(
        (samples, asked),
        (lines.iter().map(String::as_str).collect(), 2)
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn a_table_without_families_is_counted_once() {
    let (text, asked) = page(&[&[7, 0]], "# TYPE m_x gauge\n# TYPE m_y gauge\n");
    assert!(
        text.contains("twinprobe_export_skipped_total 6\n"),
        "{text}"
    );
    assert_eq!(asked, 1, "its rows had to be counted");
}

#[test]
fn rows_of_many_chunks_are_all_written() {
    // Some 200 KiB, which are handed on in chunks of 64 KiB.
    let (text, _) = page(&vec![&[7, 0][..]; 5_000], "");
    assert_eq!(shown(&text).len(), 5_000);
}
