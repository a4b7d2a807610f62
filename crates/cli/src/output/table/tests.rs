use super::*;

const fn screen(width: usize) -> Screen {
    Screen {
        width,
        colour: false,
        wide: false,
    }
}

fn sample() -> TextTable {
    let mut table = TextTable::default();
    let mut row = table.row();
    row.text("key", "tcp");
    row.number("bytes", "1500");
    let mut row = table.row();
    row.text("key", "a long one");
    row.number("bytes", "7");
    row.text("note", "é\u{1b}[2J");
    table
}

#[test]
fn columns_are_aligned() {
    let expected = "\
key         bytes  note
tcp          1500
a long one      7  é\\u{1b}[2J
";
    assert_eq!(sample().render(screen(80)), expected);
    let coloured = sample().render(Screen {
        colour: true,
        ..screen(80)
    });
    assert_eq!(
        coloured.lines().next(),
        Some("\u{1b}[1mkey         bytes  note\u{1b}[0m")
    );
}

#[test]
fn what_is_too_wide_becomes_records() {
    let expected = "\
key    tcp
bytes  1500

key    a long one
bytes  7
note   é\\u{1b}[2J
";
    assert_eq!(sample().render(screen(20)), expected);
}

#[test]
fn titles_are_folded_before_rows_become_records() {
    let mut table = TextTable::default();
    for (key, questions, late) in [("192.0.2.3", "1422", "0"), ("192.0.2.25", "22", "17")] {
        let mut row = table.row();
        row.text("key", key);
        row.number("questions_total", questions);
        row.number("late_total", late);
    }
    // The first line begins with spaces.
    let expected = "            questions_  late_
key              total  total
192.0.2.3         1422      0
192.0.2.25          22     17
";
    assert_eq!(table.render(screen(36)), expected);
    assert_eq!(
        fold_title("key.server_port", 5),
        ["key.", "server_", "port"]
    );
    assert_eq!(
        fold_title("eth0 tags=1 vlan=7 192.0.2.1", 11),
        ["eth0 tags=1", "vlan=7", "192.0.2.1"]
    );
    assert_eq!(fold_title("a_b_c", 4), ["a_b_", "c"]);
    assert_eq!(fold_title("bytes", 2), ["bytes"]);
}

#[test]
fn long_words_are_folded_and_numbers_are_not() {
    let mut table = TextTable::default();
    let mut row = table.row();
    row.text("NAME", "dns");
    row.number("BYTES", "18446744073709551615");
    row.text(
        "REASON",
        "there is no interface of this name on the machine",
    );
    let text = table.render(screen(60));
    assert!(
        text.lines().all(|line| line.chars().count() <= 60),
        "{text}"
    );
    assert!(
        text.contains("18446744073709551615") && text.lines().count() > 2,
        "{text}"
    );
}

#[test]
fn rows_are_sorted_and_cut() {
    let mut table = sample();
    assert!(table.sort("key"));
    assert!(table.sort("bytes") && !table.sort("packets"));
    assert_eq!(table.truncate(1), 1);
    assert_eq!(table.render(screen(80)), "key  bytes  note\ntcp   1500\n");
}

#[test]
fn cells_have_a_limit() {
    assert_eq!(printable(&"x".repeat(100)).len(), CELL + 3);
    for (text, cell) in [
        ("a\nb", r"a\u{a}b"),
        (r"a\nb", r"a\nb"),
        (r"\u{a}", r"\u{5c}u{a}"),
        ("a ", r"a\u{20}"),
        (" ", r"\u{20}"),
        ("a b", "a b"),
    ] {
        assert_eq!(printable(text), cell);
    }
    let mut table = TextTable::default();
    for end in ["a", "b"] {
        table.row().text("key.name", &("x".repeat(100) + end));
    }
    assert!(
        table.rows[0][0].text != table.rows[1][0].text,
        "keys are not cut"
    );
    assert_eq!(TextTable::default().render(screen(0)), "");
}

#[test]
fn wide_characters_take_two_columns() {
    let mut table = TextTable::default();
    for (name, bytes) in [("漢字", "1"), ("four", "23")] {
        let mut row = table.row();
        row.text("NAME", name);
        row.number("BYTES", bytes);
    }
    assert_eq!(
        table.render(screen(80)),
        "NAME  BYTES\n漢字      1\nfour     23\n"
    );
}

#[test]
fn narrow_screens_leave_out_spare_columns() {
    let made = || {
        let mut table = TextTable::with_spare(&["AGE", "TAGS"]);
        let mut row = table.row();
        row.text("NAME", "dns");
        row.number("AGE", "7");
        row.text("TAGS", "latency");
        row.text("WHAT", "questions and answers");
        table
    };
    assert_eq!(
        made().render(screen(80)),
        "NAME  AGE  TAGS     WHAT\ndns     7  latency  questions and answers\n"
    );
    assert_eq!(
        made().render(screen(38)),
        "NAME  AGE  WHAT\ndns     7  questions and answers\n"
    );
    assert_eq!(
        made().render(screen(30)),
        "NAME  WHAT\ndns   questions and answers\n"
    );
}
