//! Compares the outputs on a page with the real outputs. Three things may differ. A time in RFC
//! 3339, or as tables have it, stands for every time. A `…` stands for any text within a line; on a
//! line of its own it stands for one or more lines. Two or more spaces after a text, as between
//! columns, stand for any two or more.

const ANYTHING: char = '…';

/// Tells whether the lines that came are those that the page shows.
pub fn lines_match(shown: &[String], came: &[String]) -> bool {
    let Some((first, rest)) = shown.split_first() else {
        return came.is_empty();
    };
    if first.trim() == "…" {
        return (1..=came.len()).any(|skipped| lines_match(rest, &came[skipped..]));
    }
    came.split_first()
        .is_some_and(|(line, left)| line_matches(first, line) && lines_match(rest, left))
}

/// Tells whether a line agrees with the page.
pub fn line_matches(shown: &str, came: &str) -> bool {
    fits(&plain(shown), &plain(came))
}

fn fits(shown: &str, came: &str) -> bool {
    match shown.split_once(ANYTHING) {
        None => shown == came,
        Some((before, after)) => came.strip_prefix(before).is_some_and(|left| {
            left.char_indices()
                .skip(1)
                .map(|(at, _)| at)
                .chain([left.len()])
                .any(|at| at > 0 && fits(after, &left[at..]))
        }),
    }
}

/// Replaces times such as `2026-11-22T10:00:00.5Z` by one word, and the spaces between columns by
/// two.
fn plain(line: &str) -> String {
    let mut left = line.trim_end();
    let indent = left.len() - left.trim_start().len();
    let mut plain = left[..indent].to_owned();
    left = &left[indent..];
    while let Some(first) = left.chars().next() {
        let spaces = left.len() - left.trim_start_matches(' ').len();
        if let Some(length) = time_length(left) {
            plain.push_str("TIME");
            left = &left[length..];
        } else if spaces > 2 {
            plain.push_str("  ");
            left = &left[spaces..];
        } else {
            plain.push(first);
            left = &left[first.len_utf8()..];
        }
    }
    plain
}

/// Returns the length of the time that a text begins with.
fn time_length(text: &str) -> Option<usize> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let same = |(&wanted, &is): (&u8, &u8)| match wanted {
        b'0' => is.is_ascii_digit(),
        b'T' => is == b'T' || is == b' ',
        wanted => wanted == is,
    };
    (bytes.len() >= SHAPE.len() && SHAPE.iter().zip(bytes).all(same)).then_some(())?;
    let fraction = bytes[SHAPE.len()..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b'.')
        .count();
    let end = SHAPE.len() + fraction;
    // Tables have short times, in the time zone of the machine.
    match bytes[10] {
        b' ' => Some(end),
        _ => (bytes.get(end) == Some(&b'Z')).then_some(end + 1),
    }
}

#[test]
fn nothing_but_times_and_marked_places_may_differ() {
    let fit = |shown: &str, came: &str| {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        lines_match(&lines(shown), &lines(came))
    };
    assert!(fit("a 5\nb", "a 5\nb"));
    assert!(!fit("a 5", "a 6") && !fit("a", "a\nb") && !fit("a\nb", "a"));
    assert!(
        fit("at 2026-11-22T10:00:00Z", "at 2030-01-02T03:04:05.678Z")
            && !fit("2026-11-22T10:00:00Z", "now")
    );
    assert!(fit(
        "at  2026-11-22 10:00:00.123  7",
        "at  2030-01-02 03:04:05.678    7"
    ));
    assert!(fit("took … ms, all", "took 17.25 ms, all") && !fit("took … ms", "took  ms, all"));
    assert!(fit("…", "x") && !fit("…", "") && !fit("a…", "a"));
    assert!(fit("a  b", "a     b") && !fit("a b", "a  b") && !fit("  ^", "   ^"));
    assert!(fit("a\n…\nd", "a\nb\nc\nd") && !fit("a\n…\nd", "a\nd") && !fit("a\n…\nd", "a\nb\nc"));
}
