//! The place of a field in a text of YAML or JSON, for errors that only know its path.

use saphyr_parser::{Event, Parser};

/// Returns the line and column, from 1, of the field at `path`, as in `to[0].nats.stream`. The
/// place of a member is that of its name. Without such a field, the result is the place of the
/// nearest field around it.
pub fn place_of(text: &str, path: &str) -> Option<(usize, usize)> {
    let mut path = path;
    loop {
        if let Some(place) = exact(text, path) {
            return Some(place);
        }
        path = &path[..path.rfind(['.', '['])?];
    }
}

/// An open list or object.
enum Level {
    List { next: usize },
    Object { key: Option<String> },
}

/// A walk that knows the path of each node.
struct PathWalk<'a> {
    wanted: &'a str,
    open: Vec<(Level, usize)>,
    path: String,
}

fn exact(text: &str, wanted: &str) -> Option<(usize, usize)> {
    let mut walk = PathWalk {
        wanted,
        open: Vec::new(),
        path: String::new(),
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        if walk.step(&event) {
            return Some((span.start.line().max(1), span.start.col() + 1));
        }
    }
    None
}

impl PathWalk<'_> {
    /// Takes a step. Returns true at the wanted node.
    fn step(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Scalar(text, ..) if self.takes_key() => {
                if let Some((Level::Object { key }, _)) = self.open.last_mut() {
                    *key = Some(text.to_string());
                }
                let parent = self.path.len();
                self.extend(&format!(".{text}"));
                let found = self.path == self.wanted;
                self.path.truncate(parent);
                found
            }
            Event::Scalar(..) | Event::Alias(_) => {
                let parent = self.begin();
                let found = self.path == self.wanted;
                self.path.truncate(parent);
                found
            }
            Event::SequenceStart(..) => self.open(Level::List { next: 0 }),
            Event::MappingStart(..) => self.open(Level::Object { key: None }),
            Event::SequenceEnd | Event::MappingEnd => {
                let parent = self.open.pop().map_or(0, |(_, parent)| parent);
                self.path.truncate(parent);
                false
            }
            _ => false,
        }
    }

    fn takes_key(&self) -> bool {
        matches!(self.open.last(), Some((Level::Object { key: None }, _)))
    }

    fn open(&mut self, level: Level) -> bool {
        let parent = self.begin();
        self.open.push((level, parent));
        self.path == self.wanted && !self.path.is_empty()
    }

    /// Appends the step to the node that begins. Returns the length of the previous path.
    fn begin(&mut self) -> usize {
        let parent = self.path.len();
        match self.open.last_mut() {
            Some((Level::List { next }, _)) => {
                let step = format!("[{next}]");
                *next += 1;
                self.path.push_str(&step);
            }
            Some((Level::Object { key }, _)) => {
                let key = key.take().unwrap_or_default();
                self.extend(&format!(".{key}"));
            }
            None => {}
        }
        parent
    }

    fn extend(&mut self, step: &str) {
        self.path.push_str(if self.path.is_empty() {
            step.trim_start_matches('.')
        } else {
            step
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_path() {
        let text = "name: a\nfrom:\n  servers: [x, y]\nto:\n- nats:\n    stream: S\n- file: { directory: /d }\n";
        for (path, place) in [
            ("name", (1, 1)),
            ("from.servers", (3, 3)),
            ("from.servers[1]", (3, 16)),
            ("to[0].nats.stream", (6, 5)),
            ("to[1].file.directory", (7, 11)),
            ("to[1].file.none", (7, 3)),
        ] {
            assert_eq!(place_of(text, path), Some(place), "{path}");
        }
        assert_eq!(place_of("{\"a\": {\n \"b\": 1}}", "a.b"), Some((2, 2)));
        assert_eq!(place_of("a: 1", "b"), None);
    }
}
