//! Declarations right behind a label, as C has them since 2023 and clang since version 18. Older
//! compilers need an empty statement between the two.

use std::collections::{BTreeMap, BTreeSet};

use twinprobe_ebpf_common::finding::name_beside;

const ERROR: &str = ": error: ";
/// The messages for a type there: for a word of C, and for a name such as `__u32`.
const MESSAGES: [&str; 2] = ["expected expression", "unexpected type name "];

/// A source, and the files beside it.
pub struct UnitTexts {
    pub source: String,
    pub files: BTreeMap<String, String>,
}

impl UnitTexts {
    /// Writes an empty statement at each place where clang's log misses an expression behind a
    /// label. The log calls the source `name`. Returns false if the log has no such place. The
    /// lines stay the same.
    pub fn separate(&mut self, log: &str, name: &str) -> bool {
        let places: BTreeSet<(&str, usize, usize)> = log.lines().filter_map(place).collect();
        let mut is_changed = false;
        // A change moves the places behind it in its line, so that the last place comes first.
        for (file, line, column) in places.into_iter().rev() {
            let text = match name_beside(file) {
                _ if file == name => Some(&mut self.source),
                Some(beside) => self.files.get_mut(&beside),
                None => None,
            };
            let Some(text) = text else { continue };
            let Some(at) = offset(text, line, column) else {
                continue;
            };
            if text[..at].trim_end().ends_with(':') {
                text.insert(at, ';');
                is_changed = true;
            }
        }
        is_changed
    }
}

/// Returns the file, the line and the column of an error about a missing expression.
fn place(line: &str) -> Option<(&str, usize, usize)> {
    let (place, message) = line.split_once(ERROR)?;
    MESSAGES.iter().find(|known| message.starts_with(*known))?;
    let mut parts = place.rsplitn(3, ':');
    let (column, line) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((parts.next()?, line, column))
}

/// Returns the offset in bytes of a place in a text.
fn offset(text: &str, line: usize, column: usize) -> Option<usize> {
    let start: usize = text
        .split_inclusive('\n')
        .take(line.checked_sub(1)?)
        .map(str::len)
        .sum();
    let at = start.checked_add(column.checked_sub(1)?)?;
    text.is_char_boundary(at).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_get_an_empty_statement() {
        let source = "case 1:\n\tint a;\nif (b) int c;\nd = e ? f: int g;\n";
        let mut texts = UnitTexts {
            source: source.to_owned(),
            files: BTreeMap::new(),
        };
        let log = |places: &[(usize, usize)]| -> String {
            places
                .iter()
                .map(|(line, column)| {
                    format!("<stdin>:{line}:{column}: error: expected expression\n")
                })
                .collect()
        };
        assert!(
            !texts.separate(&log(&[(3, 8), (9, 1), (1, 900), (0, 0)]), "<stdin>")
                && texts.source == source
        );
        assert!(texts.separate(&log(&[(2, 2), (2, 2), (3, 8)]), "<stdin>"));
        assert_eq!(texts.source, source.replace("int a", ";int a"));
        assert!(!texts.separate(
            "/usr/include/a.h:1:1: error: expected expression\n",
            "<stdin>"
        ));
    }
}
