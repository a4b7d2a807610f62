//! The functions and structs that a source defines, as far as they can be known without its headers
//! and macros.

use std::collections::{BTreeMap, BTreeSet};

use crate::bcc::token::{SourceToken, TokenKind, tokens};

/// Names that look like a called function before or after the parameters of one.
const ATTRIBUTES: [&str; 8] = [
    "__attribute__",
    "__attribute",
    "SEC",
    "BCC_SEC",
    "__section",
    "__asm__",
    "asm",
    "__declspec",
];
/// The types to which an address is cast.
const INTEGERS: [&str; 10] = [
    "u32",
    "u64",
    "__u32",
    "__u64",
    "uint32_t",
    "uint64_t",
    "uintptr_t",
    "size_t",
    "long",
    "int",
];
/// The attribute of BCC's packet headers.
const PACKET_HEADER: &str = "BPF_PACKET_HEADER";

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    pub name: &'a str,
    /// The line of the name.
    pub line: u32,
    pub is_static: bool,
    pub parameters: Vec<Parameter<'a>>,
    /// True if the function reads headers by `cursor_advance()`.
    pub has_cursor: bool,
}

/// A parameter of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameter<'a> {
    pub name: &'a str,
    /// The struct that the parameter points to.
    pub points_to: Option<&'a str>,
}

impl<'a> Function<'a> {
    /// The struct of the first parameter: the context from the kernel.
    pub fn context(&self) -> Option<&'a str> {
        self.parameters.first()?.points_to
    }
}

/// A header of the packet whose address the source uses as a number somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressed<'a> {
    /// The variable.
    pub name: &'a str,
    /// The lines that use the header's address as a number. They may also ask for the header's
    /// size.
    pub numbers: BTreeSet<u32>,
    /// The lines that use the header in another way.
    pub others: BTreeSet<u32>,
}

/// The definitions of a source.
#[derive(Debug, Default)]
pub struct Scan<'a> {
    pub functions: Vec<Function<'a>>,
    /// The structs with a body.
    pub structs: BTreeSet<&'a str>,
    /// The packet headers that the source defines, each with the widths of its fields in bytes, one
    /// digit for each field.
    pub headers: Vec<(&'a str, String)>,
    /// The tables whose declarations have a type, with the type: `"hash"`, `"extern"`, `"prog"`. A
    /// table in several alternatives is listed several times.
    pub tables: Vec<(&'a str, &'a str)>,
    /// The headers of the packet whose addresses the source uses as numbers.
    pub addresses: Vec<Addressed<'a>>,
    /// All names that are used anywhere.
    pub names: BTreeSet<&'a str>,
}

impl<'a> Scan<'a> {
    /// Adds the definitions of a file that was sent with the source. Its functions can be called,
    /// but are not entry points.
    pub fn take_in(&mut self, file: Self) {
        let Self {
            functions,
            structs,
            headers,
            tables,
            addresses: _,
            names,
        } = file;
        self.functions
            .extend(functions.into_iter().filter(|function| function.is_static));
        self.structs.extend(structs);
        self.headers.extend(headers);
        self.tables.extend(tables);
        self.names.extend(names);
    }

    /// Adds the struct whose body follows the tokens `before`, if they end in its name.
    fn take_struct(&mut self, before: &[SourceToken<'a>], body: &[SourceToken<'a>]) {
        if let [.., keyword, name] = before
            && keyword.is("struct")
            && name.kind == TokenKind::Name
        {
            self.structs.insert(name.text);
            self.headers.extend(header(name.text, body));
        }
    }
}

/// Reads a source. Braces that alternatives of the preprocessor repeat count once.
pub fn scan(source: &str) -> Scan<'_> {
    let tokens = tokens(source);
    let mut scan = Scan {
        addresses: addresses(&tokens),
        ..Scan::default()
    };
    // The start of the current declaration, and the open `#if` alternatives, each with the depth at
    // its beginning.
    let (mut start, mut depth, mut alternatives) = (0, 0_usize, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Alternative => {
                match token.text {
                    "if" => alternatives.push(depth),
                    "else" => depth = alternatives.last().copied().unwrap_or(depth),
                    _ => drop(alternatives.pop()),
                }
                if depth == 0 {
                    start = at + 1;
                }
                continue;
            }
            TokenKind::Name => {
                scan.names.insert(token.text);
                if token.text == "cursor_advance"
                    && depth > 0
                    && let Some(function) = scan.functions.last_mut()
                {
                    function.has_cursor = true;
                }
            }
            _ => {}
        }
        match token.text {
            _ if token.kind == TokenKind::Literal => {}
            "(" if depth == 0 && at > 0 => {
                scan.tables.extend(table(tokens[at - 1], &tokens[at + 1..]));
            }
            "{" => {
                if depth == 0 {
                    scan.functions.extend(function(&tokens[start..at]));
                }
                scan.take_struct(&tokens[..at], &tokens[at + 1..]);
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    start = at + 1;
                }
            }
            ";" if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    scan
}

/// Returns the names outside of functions and structs, including the names of maps, each with the
/// line of its first use. The tag of a struct does not count: a map may have the name of its
/// struct.
pub fn declared(source: &str) -> BTreeMap<String, u32> {
    let (tokens, mut depth, mut lines) = (tokens(source), 0_usize, BTreeMap::new());
    for (at, token) in tokens.iter().enumerate() {
        let is_tag = at.checked_sub(1).is_some_and(|before| {
            ["struct", "union", "enum"]
                .iter()
                .any(|tag| tokens[before].is(tag))
        });
        match token.text {
            "{" if token.kind == TokenKind::Sign => depth += 1,
            "}" if token.kind == TokenKind::Sign => depth = depth.saturating_sub(1),
            name if token.kind == TokenKind::Name && depth == 0 && !is_tag => {
                lines.entry(name.to_owned()).or_insert(token.line);
            }
            _ => {}
        }
    }
    lines
}

/// Returns the variables that are set by `cursor_advance()` and cast to an integer somewhere.
fn addresses<'a>(tokens: &[SourceToken<'a>]) -> Vec<Addressed<'a>> {
    let is = |at: Option<usize>, text| {
        at.and_then(|at| tokens.get(at))
            .is_some_and(|token| token.is(text))
    };
    let is_set = |at: &usize| is(at.checked_add(1), "=") && is(at.checked_add(2), "cursor_advance");
    let headers: BTreeSet<&str> = (0..tokens.len())
        .filter(is_set)
        .map(|at| tokens[at].text)
        .collect();
    let of = |name: &'a str| {
        let mut header = Addressed {
            name,
            numbers: BTreeSet::new(),
            others: BTreeSet::new(),
        };
        let mut sizes = BTreeSet::new();
        for (at, token) in tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| token.is(name))
        {
            let before = |back: usize| at.checked_sub(back);
            let is_cast = is(before(1), ")")
                && before(2).is_some_and(|at| INTEGERS.contains(&tokens[at].text))
                && (is(before(3), "(") || is(before(3), "unsigned") && is(before(4), "("));
            let is_member = is(Some(at + 1), "-") && is(Some(at + 2), ">");
            let is_size = is(before(1), "*")
                && is(before(2), "(")
                && is(before(3), "sizeof")
                && is(Some(at + 1), ")");
            match is_cast && !is_member {
                true => _ = header.numbers.insert(token.line),
                false if is_size => _ = sizes.insert(token.line),
                false => _ = header.others.insert(token.line),
            }
        }
        header.others.extend(sizes.difference(&header.numbers));
        header
    };
    headers
        .into_iter()
        .map(of)
        .filter(|header| !header.numbers.is_empty())
        .collect()
}

/// Reads the arguments of a macro that declares a table of a given type; `None` for other macros.
fn table<'a>(name: SourceToken<'a>, arguments: &[SourceToken<'a>]) -> Option<(&'a str, &'a str)> {
    // (type, key, leaf, name, ...) or (type, name, leaf, ...)
    let (at, known) = match name.text {
        name if name.starts_with("BPF_TABLE") || name == "BPF_F_TABLE" => (3, None),
        name if name.starts_with("BPF_QUEUESTACK") => (1, None),
        "BPF_PROG_ARRAY" => (0, Some("prog")),
        _ => return None,
    };
    let mut depth = 0_usize;
    let end = arguments.iter().position(|token| {
        depth += usize::from(token.is("("));
        let ends = token.is(")") && depth == 0;
        depth = depth.saturating_sub(usize::from(token.is(")")));
        ends
    })?;
    let given = || arguments.first()?.text.strip_prefix('"')?.strip_suffix('"');
    let kind = known.or_else(given)?;
    let name = arguments[..end].split(|token| token.is(",")).nth(at)?;
    match name {
        [name] if name.kind == TokenKind::Name => Some((name.text, kind)),
        _ => None,
    }
}

/// Reads the head before the body of a function; `None` if the body is not that of a function.
fn function<'a>(declaration: &[SourceToken<'a>]) -> Option<Function<'a>> {
    let (mut found, mut depth) = (None, 0_usize);
    for (at, token) in declaration.iter().enumerate() {
        match token.text {
            "=" if depth == 0 => return None,
            "(" => {
                let before = at.checked_sub(1).map(|before| declaration[before]);
                let name = before.filter(|token| token.kind == TokenKind::Name);
                if depth == 0
                    && let Some(name) = name.filter(|name| !ATTRIBUTES.contains(&name.text))
                {
                    found = Some((name, at + 1, at + 1));
                }
                depth += 1;
            }
            ")" => {
                depth = depth.saturating_sub(1);
                if let Some((_, begin, end)) = &mut found
                    && depth == 0
                    && begin == end
                {
                    *end = at;
                }
            }
            _ => {}
        }
    }
    let (name, begin, end) = found?;
    // A struct is not a function, although an attribute with arguments looks like the name of a
    // function.
    let parameters = declaration.get(begin..end)?.split(|token| token.is(","));
    Some(Function {
        name: name.text,
        line: name.line,
        is_static: declaration.iter().any(|token| token.is("static")),
        parameters: parameters
            .filter(|tokens| !tokens.is_empty())
            .map(parameter)
            .collect(),
        has_cursor: false,
    })
}

fn parameter<'a>(tokens: &[SourceToken<'a>]) -> Parameter<'a> {
    let name = tokens
        .iter()
        .rfind(|token| token.kind == TokenKind::Name)
        .map_or("", |token| token.text);
    let at = tokens.iter().position(|token| token.is("struct"));
    let points_to = at
        .and_then(|at| tokens.get(at + 1))
        .filter(|_| tokens.iter().any(|token| token.is("*")));
    Parameter {
        name,
        points_to: points_to.map(|token| token.text),
    }
}

/// Reads the fields of a struct up to its attribute as a packet header; `None` for other structs,
/// or if a field is neither an integer nor an array of bytes.
fn header<'a>(name: &'a str, body: &[SourceToken<'a>]) -> Option<(&'a str, String)> {
    let end = body.iter().position(|token| token.is("}"))?;
    body.get(end + 1).filter(|token| token.is(PACKET_HEADER))?;
    let mut widths = String::new();
    for field in body[..end]
        .split(|token| token.is(";"))
        .filter(|field| !field.is_empty())
    {
        let array = field.iter().position(|token| token.is("["));
        let (field, count) = match array {
            Some(at) => (&field[..at], field.get(at + 1)?.text.parse::<usize>().ok()?),
            None => (field, 1),
        };
        let (_, types) = field.split_last()?;
        let words: Vec<&str> = types.iter().map(|token| token.text).collect();
        let width = match words.join(" ").as_str() {
            "u8" | "__u8" | "uint8_t" | "char" | "unsigned char" | "signed char" => '1',
            "u16" | "__u16" | "__be16" | "uint16_t" | "unsigned short" | "short" => '2',
            "u32" | "__u32" | "__be32" | "uint32_t" | "unsigned int" | "unsigned" | "int" => '4',
            "u64" | "__u64" | "__be64" | "uint64_t" | "unsigned long long" | "unsigned long" => '8',
            _ => return None,
        };
        widths.extend(std::iter::repeat_n(width, count.min(64)));
    }
    Some((name, widths))
}

#[cfg(test)]
mod tests;
