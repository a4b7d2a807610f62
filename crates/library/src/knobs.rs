//! The choices that a source leaves to its configuration: macros that it defines only if they are
//! not defined yet, and variables.

/// A choice of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    pub name: String,
    /// The value that applies without a choice.
    pub default: Option<String>,
    /// The explanation in the comment of the choice.
    pub about: Option<String>,
}

/// The macros of twinprobe.h that a configuration may define.
pub const OF_THE_HEADER: [&str; 5] = [
    "TWINPROBE_SINGLE_BUFFER",
    "TP_HEADERS",
    "TP_TAGS",
    "TP_LABELS",
    "TP_EXTENSIONS",
];

/// Returns the macros that a source defines between `#ifndef NAME` and `#endif`, or tests and
/// describes, with their description: a line `NAME=n`, spaces and words in a comment; later lines
/// may continue it.
pub fn defines(source: &str) -> Vec<Knob> {
    let mut found = open_macros(source);
    for line in source.lines() {
        let Some((name, _)) = described(line).filter(|(name, _)| is_tested(source, name)) else {
            continue;
        };
        if !found.iter().any(|knob| knob.name == name) {
            let words = words_about(source, name).unwrap_or_default();
            let (about, default) = without_default(&words);
            found.push(Knob {
                name: name.to_owned(),
                default: default.map(str::to_owned),
                about: Some(about.to_owned()),
            });
        }
    }
    found
}

/// Returns the name and the words of a line about a macro in a comment.
fn described(line: &str) -> Option<(&str, &str)> {
    let (name, words) = line
        .trim_start()
        .strip_prefix('*')?
        .trim_start()
        .split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, words.split_once([' ', '\t'])?.1.trim()))
}

/// Tells whether a condition of the preprocessor asks for a macro.
fn is_tested(source: &str, name: &str) -> bool {
    let is_condition = |line: &str| {
        ["#if", "#elif"]
            .iter()
            .any(|word| line.trim_start().starts_with(word))
    };
    source
        .lines()
        .any(|line| is_condition(line) && mentions(line, name))
}

/// Returns the macros that a source defines between `#ifndef NAME` and `#endif`, without those that
/// the daemon defines.
fn open_macros(source: &str) -> Vec<Knob> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut found: Vec<Knob> = Vec::new();
    for pair in lines.windows(2) {
        let Some(name) = pair[0].strip_prefix("#ifndef ").map(str::trim) else {
            continue;
        };
        let defined = pair[1].strip_prefix("#define ").map(str::trim_start);
        // A guard against a second inclusion defines a name without a value.
        let Some((of, value)) = defined.and_then(|defined| defined.split_once([' ', '\t'])) else {
            continue;
        };
        let value = value.split("/*").next().unwrap_or_default().trim();
        let is_of_the_daemon = name.starts_with("TWINPROBE_") && !OF_THE_HEADER.contains(&name);
        let is_open = of == name && !value.is_empty() && !is_of_the_daemon;
        if is_open && !found.iter().any(|knob| knob.name == name) {
            let about = words_about(source, name).map(|words| without_default(&words).0.to_owned());
            found.push(Knob {
                name: name.to_owned(),
                default: Some(value.to_owned()),
                about,
            });
        }
    }
    found
}

/// Returns the words of the comment about a macro.
fn words_about(source: &str, name: &str) -> Option<String> {
    let begins = |line| {
        described(line)
            .filter(|(of, _)| *of == name)
            .map(|(_, words): (_, &str)| words.to_owned())
    };
    let mut lines = source.lines();
    let mut words = lines.by_ref().find_map(begins)?;
    for line in lines {
        let is_indented = |rest: &&str| rest.starts_with("\t\t") || rest.starts_with("          ");
        let Some(rest) = line.trim_start().strip_prefix('*').filter(is_indented) else {
            break;
        };
        words.push_str(&format!(" {}", rest.trim()));
    }
    Some(words)
}

/// Splits `words (default 15)` into the words and the default.
fn without_default(words: &str) -> (&str, Option<&str>) {
    let split = words
        .strip_suffix(')')
        .and_then(|words| words.rsplit_once(" (default "));
    split.map_or((words, None), |(words, default)| (words, Some(default)))
}

/// Returns the global variables on lines such as `const volatile __u32 limit = 5;`.
pub fn variables(source: &str) -> Vec<Knob> {
    source.lines().filter_map(variable).collect()
}

fn variable(line: &str) -> Option<Knob> {
    let begins = line.chars().next()?;
    let is_words = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ' ' | '\t' | '*');
    let (declared, rest) = line.split_once(';')?;
    let (declared, value) = declared
        .split_once('=')
        .map_or((declared, None), |(left, right)| (left, Some(right)));
    let others = [
        "typedef", "extern", "return", "goto", "struct ", "union ", "enum ",
    ];
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
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

/// Tells whether a source always defines a macro, so that a configuration can't choose its value:
/// not only under a condition of the preprocessor. The guard of a header against a second inclusion
/// does not count as such a condition.
pub fn is_fixed(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let guard = lines.windows(2).find_map(|pair| {
        let guard = pair[0].strip_prefix("#ifndef ")?;
        (pair[1].strip_prefix("#define ")?.trim() == guard.trim()).then_some(pair[0])
    });
    let mut depth = 0_usize;
    for line in lines {
        if line.starts_with("#if") && Some(line) != guard {
            depth += 1;
        } else if line.starts_with("#endif") {
            depth = depth.saturating_sub(1);
        }
        let rest = line
            .strip_prefix("#define ")
            .and_then(|rest| rest.trim_start().strip_prefix(name));
        let is_defined =
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '(']));
        if is_defined && depth == 0 {
            return true;
        }
    }
    false
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
        assert_eq!(
            found[0].about.as_deref(),
            Some("names at most; the oldest make room")
        );
        assert_eq!(found[1].about.as_deref(), Some("the port"));
        assert!(is_fixed(SOURCE, "FIXED") && !is_fixed(SOURCE, "PORT") && !is_fixed(SOURCE, "FIX"));
        assert!(is_fixed(
            "#ifndef A_H\n#define A_H\n#define SIZE 3\n#endif\n",
            "SIZE"
        ));
    }

    #[test]
    fn macros_that_a_condition_asks_for_need_a_description() {
        let source = "/*\n *   KIND=n   the kind\n *\t\tof it (default 2)\n *   OTHER=1  tested nowhere\n */\n#ifndef KIND\n\
                      #if defined(SMALL)\n#define KIND 1\n#else\n#define KIND 2\n#endif\n#endif\n\
                      #ifndef TWINPROBE_TC\n#define TWINPROBE_TC 1\n#endif\n";
        let knob = |name: &str, default: &str, about: &str| Knob {
            name: name.to_owned(),
            default: Some(default.to_owned()),
            about: Some(about.to_owned()),
        };
        assert_eq!(defines(source), [knob("KIND", "2", "the kind of it")]);
        assert!(!is_fixed(source, "KIND"));
    }

    #[test]
    fn variables_are_those_of_the_file() {
        let found: Vec<(String, Option<String>)> = variables(SOURCE)
            .into_iter()
            .map(|knob| (knob.name, knob.default))
            .collect();
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
