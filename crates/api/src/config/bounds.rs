//! The bounds of a text that is about to be parsed. One pass checks them, and ends where the text
//! exceeds a bound. Without bounds, parsers take time that grows with the square of the depth, and
//! a short reference in YAML can stand for a large text.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser};

use super::error::ParseError;

/// The deepest nesting of arrays and objects. A configuration has seven levels at most.
pub const DEPTH_LIMIT: usize = 64;
/// The most bytes by which the references of a YAML text may enlarge it.
const REFERENCE_LIMIT: usize = 4 << 20;
/// The number of directives of a YAML text. A parser compares each directive with all others.
const DIRECTIVE_LIMIT: usize = 16;
/// The bytes that a node of a document takes in addition to its scalar.
const PART: usize = 32;

/// Checks the nesting of a JSON text. The parser refuses texts that are not JSON.
pub fn check_json(text: &str) -> Result<(), ParseError> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_LIMIT {
            let before = &text.as_bytes()[..at];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            let column = 1 + before
                .iter()
                .rev()
                .take_while(|byte| **byte != b'\n')
                .count();
            return Err(too_deep(line, column));
        }
    }
    Ok(())
}

/// Checks the nesting, the references and the directives of a YAML text, and its syntax.
pub fn check_yaml(text: &str) -> Result<(), ParseError> {
    let mut directives = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with('%'));
    if let Some((line, _)) = directives.nth(DIRECTIVE_LIMIT) {
        let message =
            format!("the text has more than {DIRECTIVE_LIMIT} directives, which is the limit");
        return Err(ParseError::Malformed {
            message,
            line: line + 1,
            column: 1,
        });
    }
    let mut walk = TextWalk::default();
    for event in Parser::new_from_str(text) {
        let (event, at) = event.map_err(|error| {
            let (line, column) = place(error.marker());
            // The scanner reads ahead, and has a limit of its own.
            if error.info().contains("recursion limit") {
                return too_deep(line, column);
            }
            ParseError::Malformed {
                message: error.info().to_owned(),
                line,
                column,
            }
        })?;
        let (line, column) = place(&at.start);
        walk.step(&event).map_err(|refusal| match refusal {
            BoundRefusal::Depth => too_deep(line, column),
            BoundRefusal::References => {
                let message = format!(
                    "the references of the text (*name) stand for more than {REFERENCE_LIMIT} bytes, which is the limit; write \
                     less, or send JSON"
                );
                ParseError::Malformed { message, line, column }
            }
            BoundRefusal::Circle => {
                let message = "a reference (*name) stands in what it refers to".to_owned();
                ParseError::Malformed { message, line, column }
            }
        })?;
    }
    Ok(())
}

fn place(marker: &saphyr_parser::Marker) -> (usize, usize) {
    (marker.line().max(1), marker.col() + 1)
}

fn too_deep(line: usize, column: usize) -> ParseError {
    let message = format!(
        "arrays and objects are nested deeper than {DEPTH_LIMIT} levels, which is the limit"
    );
    ParseError::Malformed {
        message,
        line,
        column,
    }
}

enum BoundRefusal {
    Depth,
    References,
    Circle,
}

/// A walk over the parts of a YAML text.
#[derive(Default)]
struct TextWalk {
    /// The size of all parts so far, including the targets of references.
    size: usize,
    /// The size of the targets of references.
    referred: usize,
    /// For each open array and object, its anchor and the size before it.
    open: Vec<(usize, usize)>,
    /// The size of the node that each anchor names, once the node is complete.
    anchors: HashMap<usize, usize>,
}

impl TextWalk {
    fn step(&mut self, event: &Event<'_>) -> Result<(), BoundRefusal> {
        match event {
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                self.open.push((*anchor, self.size));
                self.size += PART;
                if self.open.len() > DEPTH_LIMIT {
                    return Err(BoundRefusal::Depth);
                }
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, before)) = self.open.pop() {
                    self.anchors.insert(anchor, self.size - before);
                }
            }
            Event::Scalar(text, _, anchor, _) => {
                let size = PART + text.len();
                self.size += size;
                self.anchors.insert(*anchor, size);
            }
            Event::Alias(anchor) => {
                let size = *self.anchors.get(anchor).ok_or(BoundRefusal::Circle)?;
                self.size = self.size.saturating_add(size);
                self.referred = self.referred.saturating_add(size);
                if self.referred > REFERENCE_LIMIT {
                    return Err(BoundRefusal::References);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
