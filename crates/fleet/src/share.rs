//! The nodes that belong to a share. Each node decides about itself, so a step is one write for any
//! number of nodes.

use sha2::{Digest as _, Sha256};

/// The share of all nodes, in hundredths of a per cent.
pub const WHOLE: u16 = 10_000;

/// Returns the place of a node among all nodes for this revision, from 0 to 9999. The node runs the
/// revision if its place lies below the share. The place depends on the revision, so that not
/// always the same nodes come first.
pub fn part(node: &str, revision: &str) -> u16 {
    u16::try_from(place(node, revision) % u64::from(WHOLE)).unwrap_or_default()
}

/// Returns the first nodes for this revision: `count` nodes, in the order of their places.
pub fn first<'a>(
    nodes: impl Iterator<Item = &'a str>,
    revision: &str,
    count: usize,
) -> Vec<&'a str> {
    let mut nodes: Vec<&str> = nodes.collect();
    nodes.sort_by_cached_key(|node| (place(node, revision), *node));
    nodes.truncate(count);
    nodes
}

fn place(node: &str, revision: &str) -> u64 {
    let digest = Sha256::new()
        .chain_update(revision)
        .chain_update([0])
        .chain_update(node)
        .finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |place, byte| place << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_about_their_number_of_nodes_and_grow() {
        let nodes: Vec<String> = (0..10_000).map(|i| format!("node-{i}")).collect();
        let below = |share: u16| {
            nodes
                .iter()
                .filter(|node| part(node, "flows-0a1b") < share)
                .count()
        };
        assert!((60..140).contains(&below(100)), "{}", below(100));
        assert!((900..1100).contains(&below(1000)), "{}", below(1000));
        assert_eq!((below(0), below(WHOLE)), (0, 10_000));
    }

    #[test]
    fn places_are_the_same_in_each_version_and_others_for_each_revision() {
        assert_eq!(
            (part("node-1", "flows-0a1b"), part("node-2", "flows-0a1b")),
            (7628, 9371)
        );
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let order = |revision| first(names.into_iter(), revision, 8);
        assert_ne!(order("flows-1"), order("flows-2"));
        assert_eq!(
            first(names.into_iter().rev(), "flows-1", 3),
            order("flows-1")[..3]
        );
    }
}
