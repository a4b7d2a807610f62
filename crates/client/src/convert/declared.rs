//! The tables of a source for DeChainy, and the features in their declarations.

/// A table, and its features by `__attributes__((SWAP, EMPTY, EXPORT))`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    pub swap: bool,
    pub empty: bool,
    pub export: bool,
    /// True if the other direction has the table.
    pub is_extern: bool,
    /// True if writing to the table gives a stream of events.
    pub has_events: bool,
}

/// Returns the tables that begin a line. Alternatives of the preprocessor may declare a table
/// several times: each feature counts anywhere, as in DeChainy.
pub fn declared(source: &str) -> Vec<Declared> {
    let mut found: Vec<Declared> = Vec::new();
    for line in source
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("BPF_"))
    {
        let Some(table) = table(line) else { continue };
        match found.iter_mut().find(|known| known.name == table.name) {
            None => found.push(table),
            Some(known) => {
                known.swap |= table.swap;
                known.empty |= table.empty;
                known.export |= table.export;
                known.is_extern |= table.is_extern;
            }
        }
    }
    found
}

fn table(line: &str) -> Option<Declared> {
    let (kind, rest) = line.split_once('(')?;
    let (arguments, rest) = arguments(rest)?;
    // (type, key, leaf, name, ...), (type, name, ...), (name, ...)
    let at = match kind.trim() {
        kind if kind.starts_with("BPF_TABLE") || kind.starts_with("BPF_F_TABLE") => 3,
        kind if kind.starts_with("BPF_QUEUESTACK")
            || kind == "BPF_PERF"
            || kind == "BPF_PERF_SHARED" =>
        {
            1
        }
        _ => 0,
    };
    let name = arguments.get(at)?.trim().to_owned();
    let features = rest
        .split_once("__attributes__")
        .map_or("", |(_, features)| features);
    let has = |feature: &str| {
        features
            .split(|char: char| !char.is_ascii_alphanumeric())
            .any(|word| word == feature)
    };
    Some(Declared {
        swap: has("SWAP"),
        empty: has("EMPTY"),
        export: has("EXPORT"),
        is_extern: at > 0 && arguments[0].trim() == "\"extern\"",
        has_events: kind.contains("PERF") || kind.contains("RINGBUF"),
        name,
    })
}

/// Splits the arguments of a macro, and returns what follows its closing parenthesis.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let (mut depth, mut start, mut list) = (0_usize, 0, Vec::new());
    for (at, char) in text.char_indices() {
        match char {
            '(' => depth += 1,
            ',' if depth == 0 => {
                list.push(&text[start..at]);
                start = at + 1;
            }
            ')' if depth == 0 => {
                list.push(&text[start..at]);
                return Some((list, &text[at + 1..]));
            }
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}
