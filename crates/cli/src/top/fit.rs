//! The shortening of entries that are wider than their column.

/// Returns the width that a field leaves for the key beside it.
pub fn room_of_key(field: &str, width: usize) -> usize {
    width.saturating_sub(least(field, width) + 1)
}

/// The columns of a field's name with a sign for what is left out before it; at most half of the
/// width.
fn least(field: &str, width: usize) -> usize {
    (field.chars().count() + 1).min(width / 2)
}

/// Shortens an entry: the direction, the name of its family, which ends in `field`, and the key.
/// The name loses its beginning first. A key that is still too long loses its middle.
pub fn fit(entry: &str, field: &str, width: usize) -> String {
    if entry.chars().count() <= width {
        return entry.to_owned();
    }
    let Some((name, key)) = entry
        .find('=')
        .and_then(|at| entry.split_at_checked(entry[..at].rfind(' ')?))
    else {
        return ending(entry, width);
    };
    let key = key.trim_start();
    let room = width
        .saturating_sub(key.chars().count() + 1)
        .max(least(field, width));
    format!(
        "{} {}",
        ending(name, room),
        middle(key, width.saturating_sub(room + 1))
    )
}

/// Cuts a text at its beginning.
fn ending(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(length + 1 - width.max(1)).collect();
    format!("…{kept}")
}

/// Cuts a text in its middle.
fn middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let first: String = text.chars().take(kept.div_ceil(2)).collect();
    let last: String = text.chars().skip(length - kept / 2).collect();
    format!("{first}…{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_and_both_ends_of_the_key_stay() {
        let entry = "ingress net_flows_last_seconds SRC=192.0.2.1 DST=192.0.2.2 PORT=443";
        let cut = |width| fit(entry, "last_seconds", width);
        assert_eq!(cut(70), entry);
        assert_eq!(
            cut(56),
            "…flows_last_seconds SRC=192.0.2.1 DST=192.0.2.2 PORT=443"
        );
        assert_eq!(cut(40), "…last_seconds SRC=192.0.2.1…2.2 PORT=443");
        assert_eq!(cut(12), "…conds SR…43");
        assert_eq!(room_of_key("last_seconds", 40), 26);
        for width in 0..=70 {
            assert!(cut(width).chars().count() <= width.max(3), "{width}");
        }
    }

    #[test]
    fn a_text_without_a_key_loses_its_beginning() {
        let cut = |text, width| fit(text, text, width);
        assert_eq!(
            (&*cut("abcdef", 4), &*cut("abc", 3), &*cut("abc", 0)),
            ("…def", "abc", "…")
        );
        assert_eq!((&*middle("abcdef", 4), &*middle("abc", 0)), ("ab…f", "…"));
    }
}
