//! The choices that a source leaves to its configuration: macros that it defines only if they are not defined yet, and variables.

/// A choice of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    pub name: String,
    /// The value without a choice.
    pub default: Option<String>,
    /// The explanation from its comment.
    pub about: Option<String>,
}

/// The macros of twinprobe.h that a configuration may define.
pub const OF_THE_HEADER: [&str; 5] =
    ["TWINPROBE_SINGLE_BUFFER", "TP_HEADERS", "TP_TAGS", "TP_LABELS", "TP_EXTENSIONS"];

/// Returns the macros that a source defines between `#ifndef NAME` and `#endif`, with their description: a
/// line `NAME=n`, spaces and words in a comment; later lines may continue it.
pub fn defines(source: &str) -> Vec<Knob> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut found: Vec<Knob> = Vec::new();
    for pair in lines.windows(2) {
        let Some(name) = pair[0].strip_prefix("#ifndef ").map(str::trim) else { continue };
        let defined = pair[1].strip_prefix("#define ").map(str::trim_start);
        // A guard against a second inclusion defines a name without a value.
        let Some((of, value)) = defined.and_then(|defined| defined.split_once([' ', '\t'])) else { continue };
        let value = value.split("/*").next().unwrap_or_default().trim();
        if of == name && !value.is_empty() && !found.iter().any(|knob| knob.name == name) {
            let about = about(source, name);
            found.push(Knob { name: name.to_owned(), default: Some(value.to_owned()), about });
        }
    }
    found
}

/// Returns the words of the comment about a macro, without its default.
fn about(source: &str, name: &str) -> Option<String> {
    let begins = |line: &str| {
        let words =
            line.trim_start().strip_prefix('*')?.trim_start().strip_prefix(name)?.strip_prefix('=')?;
        Some(words.split_once([' ', '\t'])?.1.trim().to_owned())
    };
    let mut lines = source.lines();
    let mut words = lines.by_ref().find_map(begins)?;
    for line in lines {
        let Some(rest) = line.trim_start().strip_prefix("*\t\t") else { break };
        words.push_str(&format!(" {}", rest.trim()));
    }
    let end = words.rfind(" (default ").filter(|_| words.ends_with(')')).unwrap_or(words.len());
    words.truncate(end);
    Some(words)
}

/// Returns the global variables on lines such as `const volatile __u32 limit = 5;`.
pub fn variables(source: &str) -> Vec<Knob> {
    source.lines().filter_map(variable).collect()
}

fn variable(line: &str) -> Option<Knob> {
    let begins = line.chars().next()?;
    let is_words = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ' ' | '\t' | '*');
    let (declared, rest) = line.split_once(';')?;
    let (declared, value) =
        declared.split_once('=').map_or((declared, None), |(left, right)| (left, Some(right)));
    let others = ["typedef", "extern", "return", "goto", "struct ", "union ", "enum "];
    let is_declaration = begins.is_ascii_alphabetic() || begins == '_';
    if !is_declaration
        || others.iter().any(|other| declared.starts_with(other))
        || rest.trim().starts_with('}')
    {
        return None;
    }
    // The licence, which has a section of its own, and functions are not choices.
    if declared.contains('(') {
        return None;
    }
    let (declared, _) = declared.split_once('[').unwrap_or((declared, ""));
    let name = declared.split_whitespace().last()?.trim_start_matches('*');
    let is_one = declared.chars().all(is_words) && declared.split_whitespace().count() > 1;
    is_one.then(|| Knob {
        name: name.to_owned(),
        default: value.map(|value| value.trim().to_owned()),
        about: None,
    })
}

/// Tells whether a text contains a word as a whole.
pub fn mentions(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// Tells whether a source always defines a macro, so that a configuration can't choose its value.
pub fn is_fixed(source: &str, name: &str) -> bool {
    let is_defined = |line: &str| {
        let rest = line.trim().strip_prefix("#define ").and_then(|rest| rest.trim_start().strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '(']))
    };
    source.lines().any(is_defined) && !defines(source).iter().any(|knob| knob.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "/*\n * dns: questions\n *\n *\tNAMES=n\t\tnames at most; the oldest\n *\t\t\tmake room (default 4096)\n \
        *\tPORT=n\t\tthe port\n */\n#ifndef NAMES\n#define NAMES 4096 /* many */\n#endif\n#ifndef PORT\n#define PORT 53\n#endif\n\
        #ifndef GUARD_H\n#define GUARD_H\n#endif\n#define FIXED 7\nconst volatile __u32 limit = 5;\n__u64 packets;\n\
        static int sizes[4];\nstruct a *b;\ntypedef int t;\nint f(void);\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n\tint inside = 1;\n";

    #[test]
    fn macros_have_their_default_and_their_comment() {
        let found = defines(SOURCE);
        let names: Vec<&str> = found.iter().map(|knob| knob.name.as_str()).collect();
        assert_eq!(names, ["NAMES", "PORT"]);
        assert_eq!(found[0].default.as_deref(), Some("4096"));
        assert_eq!(found[0].about.as_deref(), Some("names at most; the oldest make room"));
        assert_eq!(found[1].about.as_deref(), Some("the port"));
        assert!(is_fixed(SOURCE, "FIXED") && !is_fixed(SOURCE, "PORT") && !is_fixed(SOURCE, "FIX"));
    }

    #[test]
    fn variables_are_those_of_the_file() {
        let found: Vec<(String, Option<String>)> =
            variables(SOURCE).into_iter().map(|knob| (knob.name, knob.default)).collect();
        let expected = [("limit", Some("5")), ("packets", None), ("sizes", None)];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_word_is_not_a_part_of_one() {
        assert!(mentions("a PORT b", "PORT") && mentions("PORT", "PORT"));
        assert!(!mentions("EXPORT PORTS _PORT", "PORT"));
    }
}
