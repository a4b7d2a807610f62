//! The tokens of a C source, without comments and directives of the preprocessor.

/// A token and the line of its beginning, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceToken<'a> {
    pub text: &'a str,
    pub line: u32,
    pub kind: TokenKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Names and keywords.
    Name,
    /// Numbers, strings and characters.
    Literal,
    /// A single punctuation character.
    Sign,
    /// A directive that begins, continues with the next, or ends an alternative: `if`, `else`,
    /// `endif`.
    Alternative,
}

impl SourceToken<'_> {
    pub fn is(&self, text: &str) -> bool {
        self.kind != TokenKind::Literal && self.text == text
    }
}

/// Splits a source into tokens. Any text has tokens; clang judges whether the text is C.
pub fn tokens(source: &str) -> Vec<SourceToken<'_>> {
    let mut lexer = Lexer {
        rest: source,
        line: 1,
        fresh: true,
        found: Vec::new(),
    };
    while lexer.step() {}
    lexer.found
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    /// True if only space precedes the token in its line.
    fresh: bool,
    found: Vec<SourceToken<'a>>,
}

impl<'a> Lexer<'a> {
    /// Takes one token, comment, directive or space; returns false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else {
            return false;
        };
        let fresh = std::mem::replace(&mut self.fresh, false);
        match first {
            '\n' => {
                self.skip(1);
                self.fresh = true;
            }
            _ if first.is_whitespace() || first == '\\' => {
                self.skip(first.len_utf8());
                self.fresh = fresh;
            }
            '/' if self.rest.starts_with("//") => self.skip(end_of_line(self.rest)),
            '/' if self.rest.starts_with("/*") => {
                let end = self.rest[2..]
                    .find("*/")
                    .map_or(self.rest.len(), |at| at + 4);
                self.skip(end);
                self.fresh = fresh;
            }
            '#' if fresh => self.directive(),
            '"' | '\'' => self.take(literal(self.rest, first), TokenKind::Literal),
            _ if first.is_ascii_digit() => self.take(word(self.rest), TokenKind::Literal),
            _ if first == '_' || first.is_alphanumeric() => {
                self.take(word(self.rest), TokenKind::Name);
            }
            _ => self.take(first.len_utf8(), TokenKind::Sign),
        }
        true
    }

    fn directive(&mut self) {
        let end = end_of_line(self.rest);
        let name = self.rest[1..end].trim_start();
        let name = &name[..word(name)];
        let alternative = match name {
            "if" | "ifdef" | "ifndef" => "if",
            "else" | "elif" | "elifdef" | "elifndef" => "else",
            "endif" => "endif",
            _ => "",
        };
        if !alternative.is_empty() {
            let kind = TokenKind::Alternative;
            self.found.push(SourceToken {
                text: alternative,
                line: self.line,
                kind,
            });
        }
        self.skip(end);
    }

    fn take(&mut self, size: usize, kind: TokenKind) {
        self.found.push(SourceToken {
            text: &self.rest[..size],
            line: self.line,
            kind,
        });
        self.skip(size);
    }

    fn skip(&mut self, size: usize) {
        let (skipped, rest) = self.rest.split_at(size);
        self.line += skipped.matches('\n').count() as u32;
        self.rest = rest;
    }
}

/// Returns the length of a line that continues after a backslash, without its end.
fn end_of_line(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find('\n') {
        let line = text[..from + at].trim_end_matches('\r');
        if !line.ends_with('\\') {
            return from + at;
        }
        from += at + 1;
    }
    text.len()
}

fn word(text: &str) -> usize {
    text.find(|char: char| char != '_' && !char.is_alphanumeric())
        .unwrap_or(text.len())
}

/// Returns the length of a string or a character, which ends with its line at the latest.
fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            '\n' if !escaped => return at,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_directives_are_no_tokens() {
        let source =
            "int /* SEC( */ a; // \"x\n#define B \\\n  SEC\n#if 1\nchar *s = \"/*\\\"\";\n#endif";
        let texts: Vec<(&str, u32)> = tokens(source)
            .into_iter()
            .map(|token| (token.text, token.line))
            .collect();
        let expected = [
            ("int", 1),
            ("a", 1),
            (";", 1),
            ("if", 4),
            ("char", 5),
            ("*", 5),
            ("s", 5),
            ("=", 5),
            ("\"/*\\\"\"", 5),
            (";", 5),
            ("endif", 6),
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn any_text_has_tokens() {
        for text in [
            "", "\"", "'", "/*", "/", "#", "#\\", "\\", "a\u{e9}b", "\"\\", "#if\\\n",
        ] {
            tokens(text);
        }
    }
}
