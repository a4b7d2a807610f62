//! Names that a user may have meant.

/// The most names that a message offers.
const MOST: usize = 3;
/// The least length of a name that counts if another one contains it.
const LEAST: usize = 3;

/// Returns the question that a message adds to an unknown name, such as ` (is it dns?)`, or nothing
/// if no known name is near.
///
/// A name is near if one contains the other, or if one letter of three is wrong, missing, extra or
/// in another place.
pub fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let allowed = name.chars().count() / 3;
    let distance = |known: &str| match strsim::osa_distance(name, known) {
        distance if distance <= allowed => Some(distance),
        _ if allowed > 0
            && (known.contains(name) || (known.len() >= LEAST && name.contains(known))) =>
        {
            Some(allowed + 1)
        }
        _ => None,
    };
    let mut near: Vec<_> = known
        .into_iter()
        .filter_map(|known| Some((distance(known)?, known)))
        .collect();
    near.sort_unstable();
    let names: Vec<_> = near.into_iter().map(|(_, name)| name).take(MOST).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" (is it {}?)", names.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn the_nearest_names_are_offered() {
        let known = ["dns", "packet-counter", "packet-sizes", "top-talkers", "p"];
        for (name, offered) in [
            ("dsn", " (is it dns?)"),
            ("top-talker", " (is it top-talkers?)"),
            ("packet", " (is it packet-counter or packet-sizes?)"),
            ("packet-size", " (is it packet-sizes?)"),
            ("q", ""),
            ("ab", ""),
            ("conntrack", ""),
        ] {
            assert_eq!(meant(name, known), offered, "{name}");
        }
    }
}
