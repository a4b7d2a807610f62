//! A page about one table: how often its rows are asked for, and which of them become samples.

use twinprobe_ebpf_common::{MapKind, TableLayout};

use super::*;
use crate::encode::openmetrics::samples::tests::record;

/// Returns a page about one hash of pairs, and the number of times that its rows are asked for. Keys have padding.
fn page(key: &[&[u8]], own: &str) -> (String, usize) {
    page_in_pieces(Temporality::Window, own, |_| vec![key.concat()])
}

/// The same with keys that come in pieces, by how many times they have been asked for.
fn page_in_pieces(
    temporality: Temporality,
    own: &str,
    pieces: impl Fn(usize) -> Vec<Vec<u8>>,
) -> (String, usize) {
    let key = record(2, &["a"]);
    let layout =
        TableLayout { kind: MapKind::Hash, key, value: record(2, &["x", "y"]), slots: 1, inner: None };
    let metric = Arc::new(Metric { temporality, ..Metric::example("m", layout) });
    let (mut page, mut out, mut asked) = (PageEncoder::of_one(&Head::default()), Vec::new(), 0);
    page.skipped_before(4);
    page.add_metric(Direction::Ingress, &metric, Arc::default());
    page.begin(own, &mut Vec::new());
    while page.next_table(&mut out).is_some() {
        asked += 1;
        for keys in pieces(asked) {
            let values = [1, 2].repeat(keys.len() / 2);
            page.rows(&RawTable { keys, values, ..RawTable::default() }, &mut out);
        }
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
    let table = RawTable { keys: (0..ROWS as u8).collect(), values, ..RawTable::default() };
    // Both directions have a part in each family.
    for directions in [&[Direction::Ingress][..], &Direction::ALL] {
        let (mut page, mut out, mut asked) = (PageEncoder::of_one(&Head::default()), Vec::new(), 0);
        for direction in directions {
            page.add_metric(*direction, &metric, Arc::default());
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
                    assert_eq!(lines.next(), Some(&*format!("m_m{member}{labels} {number}")));
                }
            }
        }
    }
}

/// Returns the label `a` of each sample of the family `m_x`.
fn shown(text: &str) -> Vec<&str> {
    let samples = text.lines().filter_map(|line| line.strip_prefix("m_x{")?.split_once(",a=\""));
    samples.filter_map(|(_, rest)| Some(rest.split_once('"')?.0)).collect()
}

#[test]
fn a_table_is_asked_for_once_for_each_family_and_once_because_of_padding() {
    let labels = |key: &u8| format!("{{probe=\"\",direction=\"ingress\",a=\"{key}\"}}");
    let clean: &[&[u8]] = &[&[7, 0], &[8, 0]];
    for (keys, expected, skipped) in
        [(clean, vec![7, 8], 4), (&[&[7, 0], &[7, 9], &[8, 1]], vec![7, 8], 4 + 2)]
    {
        let (text, asked) = page(keys, "");
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let skipped = format!("twinprobe_export_skipped_total {skipped}");
        let mut lines = Vec::new();
        for (name, value) in [("x", 1), ("y", 2)] {
            lines.extend(expected.iter().map(|key| format!("m_{name}{} {value}", labels(key))));
        }
        lines.push(skipped);
        assert_eq!((samples, asked), (lines.iter().map(String::as_str).collect(), 3));
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}

#[test]
fn a_table_without_families_is_counted_once() {
    let (text, asked) = page(&[&[7, 0]], "# TYPE m_x gauge\n# TYPE m_y gauge\n");
    assert!(text.contains("twinprobe_export_skipped_total 6\n"), "{text}");
    assert_eq!(asked, 1, "its rows had to be counted");
}
#[test]
fn padding_is_found_in_any_piece() {
    for pieces in [[[7, 9], [8, 0]], [[8, 0], [7, 9]]] {
        let pieces = |_| pieces.map(Vec::from).into();
        let (text, asked) = page_in_pieces(Temporality::Window, "", pieces);
        let mut shown = shown(&text);
        shown.sort_unstable();
        assert_eq!((shown, asked), (vec!["7", "8"], 3), "{text}");
    }
}

#[test]
fn a_live_row_with_padding_that_was_not_there_before_is_left_out() {
    let pieces = |asked| if asked == 1 { vec![vec![7, 0]] } else { vec![vec![7, 0, 7, 9]] };
    let (text, _) = page_in_pieces(Temporality::Live, "", pieces);
    assert_eq!(shown(&text), ["7"], "{text}");
}

#[test]
fn rows_of_many_chunks_are_all_written() {
    // Some 200 KiB, which are handed on in chunks of 64 KiB.
    let (text, _) = page_in_pieces(Temporality::Window, "", |_| vec![[7, 0].repeat(5_000)]);
    assert_eq!(shown(&text).len(), 5_000);
}
