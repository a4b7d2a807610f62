//! The line of a source with a finding, and the names in the line that an advice repeats.

use std::borrow::Cow;

/// A line of a source with the place from a message of the compiler or the verifier.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt<'a> {
    source: &'a str,
    line: &'a str,
    /// The place in the line as an offset in bytes; the end of the line if the place is unknown.
    at: usize,
}

impl<'a> Excerpt<'a> {
    /// Returns the line with this number, which counts from 1, as `column` does.
    pub fn new(source: &'a str, line: Option<u32>, column: Option<u32>) -> Self {
        let number = line.and_then(|line| (line as usize).checked_sub(1));
        let line = number
            .and_then(|number| source.lines().nth(number))
            .unwrap_or_default();
        let at = column.map_or(line.len(), |column| {
            (column as usize).saturating_sub(1).min(line.len())
        });
        Self { source, line, at }
    }

    /// Returns the pointer that the line dereferences at the place, or else the first pointer of
    /// the line.
    pub fn pointer(&self) -> Option<&'a str> {
        let bytes = self.line.as_bytes();
        let mut found: Option<(usize, &str)> = None;
        for start in 0..bytes.len() {
            let is_start = is_word(bytes[start]) && (start == 0 || !is_word(bytes[start - 1]));
            if !is_start || bytes[start].is_ascii_digit() {
                continue;
            }
            let word = word(&self.line[start..]);
            let (before, after) = (
                self.line[..start].trim_end(),
                self.line[start + word.len()..].trim_start(),
            );
            if !(after.starts_with("->") || is_dereferenced(before)) {
                continue;
            }
            if found.is_none() || start <= self.at {
                found = Some((start, word));
            }
        }
        found.map(|(_, word)| word)
    }

    /// Returns the index of the array that the line reads at the place, or of the last array before
    /// it.
    pub fn index(&self) -> Option<&'a str> {
        let before = &self.line[..self.at];
        let open = before.rfind('[').or_else(|| self.line.find('['))?;
        let inside = &self.line[open + 1..];
        let inside = &inside[..inside.find(']')?];
        (!inside.is_empty()).then_some(inside)
    }

    /// Returns the variable that the line assigns or adds to an address, as `off` in `data + off`.
    pub fn addend(&self) -> Option<&'a str> {
        let after = self
            .line
            .split_once('+')
            .map(|(_, after)| after.trim_start())?;
        Some(word(after))
            .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
    }

    /// Returns the value with which a program of the source accepts a packet.
    pub fn pass(&self) -> &'static str {
        if self.source.contains("<twinprobe.h>") {
            "TP_PASS"
        } else if self.source.contains("SEC(\"tc") || self.source.contains("__sk_buff") {
            "TC_ACT_OK"
        } else {
            "XDP_PASS"
        }
    }

    /// Returns the source's variable with the end of the packet.
    pub fn end(&self) -> Cow<'a, str> {
        let assigned = self
            .source
            .split_once("ctx->data_end")
            .and_then(|(before, _)| {
                let (left, _) = before.lines().next_back()?.split_once('=')?;
                let left = left.trim_end();
                Some(
                    &left[left
                        .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                        .map_or(0, |at| at + 1)..],
                )
            });
        match assigned.filter(|name| !name.is_empty()) {
            Some(name) => name.into(),
            None => "data_end".into(),
        }
    }
}

/// Tells whether this text dereferences the expression after it: `*`, or `*(type *)`.
fn is_dereferenced(before: &str) -> bool {
    let before = match before.strip_suffix(')') {
        // A declaration `struct udphdr *udp` is not an access.
        None => {
            let Some(left) = before.strip_suffix('*') else {
                return false;
            };
            return !left
                .trim_end()
                .ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                || left.trim_end().ends_with("return");
        }
        Some(cast) => match cast.rfind('(') {
            Some(open) if cast[open..].trim_end().ends_with('*') => &cast[..open],
            _ => return false,
        },
    };
    before.trim_end().ends_with('*')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn word(text: &str) -> &str {
    let end = text
        .bytes()
        .position(|byte| !is_word(byte))
        .unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(line: &str, column: u32) -> Option<&str> {
        Excerpt::new(line, Some(1), Some(column)).pointer()
    }

    #[test]
    fn the_pointer_at_the_place_is_found() {
        assert_eq!(
            pointer("    if (udp->dest == bpf_htons(53))", 14),
            Some("udp")
        );
        assert_eq!(pointer("    *seen += 1;", 11), Some("seen"));
        assert_eq!(pointer("    return *(__u8 *)x;", 12), Some("x"));
        assert_eq!(pointer("    return *p;", 12), Some("p"));
        assert_eq!(pointer("    a->x = b->y;", 15), Some("b"));
        assert_eq!(pointer("    a->x = b->y;", 8), Some("a"));
        assert_eq!(pointer("    struct udphdr *udp = ip;", 20), None);
        assert_eq!(pointer("", 1), None);
    }

    #[test]
    fn indices_addends_and_the_words_of_a_source_are_found() {
        let at = |line, column| Excerpt::new(line, Some(1), Some(column));
        assert_eq!(at("    v->a[i]++;", 12).index(), Some("i"));
        assert_eq!(at("    __u8 *p = data + off;", 15).addend(), Some("off"));
        assert_eq!(at("    __u8 *p = data + 14;", 15).addend(), None);
        let source = "SEC(\"tc\")\nvoid *stop = (void *)(long)ctx->data_end;\n";
        assert_eq!(Excerpt::new(source, Some(2), None).end(), "stop");
        assert_eq!(Excerpt::new(source, None, None).pass(), "TC_ACT_OK");
        assert_eq!(Excerpt::new("", Some(9), Some(9)).end(), "data_end");
    }
}
