//! Invariants of the source tree that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .unwrap_or_default()
}

/// Returns every file below `directory` with this ending.
pub fn files(directory: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, ending)?);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    Ok(found)
}

#[test]
fn every_crate_inherits_the_workspace_lints() -> Result<()> {
    let workspace = fs::read_to_string(root().join("Cargo.toml"))?;
    let members = workspace
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let (members, _) = members.context("the workspace lists its members")?;
    let mut count = 0;
    for member in members
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
        .filter(|name| !name.is_empty())
    {
        let manifest = fs::read_to_string(root().join(member).join("Cargo.toml"))?;
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{member} does not inherit the lints"
        );
        count += 1;
    }
    assert!(count >= 4, "{members}");
    Ok(())
}

/// Each crate, the crates of this workspace that it may depend on, and further crates that it may
/// not depend on.
const EDGES: [(&str, &[&str], &[&str]); 21] = [
    ("ebpf-common", &[], &["aya", "libc", "tokio", "axum"]),
    (
        "exporter",
        &["ebpf-common"],
        &["aya", "libc", "tokio", "axum"],
    ),
    (
        "capture",
        &["ebpf-common"],
        &["aya", "libc", "tokio", "axum"],
    ),
    ("store", &[], &["aya", "libc", "tokio", "axum"]),
    (
        "windows",
        &["ebpf-common", "exporter", "store"],
        &["aya", "libc", "axum"],
    ),
    ("state-files", &[], &["aya", "tokio", "axum"]),
    ("faults", &[], &["aya", "libc", "tokio", "axum"]),
    (
        "kernel",
        &["ebpf-common", "state-files", "faults"],
        &["axum", "clap"],
    ),
    (
        "api",
        &["ebpf-common"],
        &["aya", "libc", "rustix", "tokio", "axum", "reqwest", "clap"],
    ),
    (
        "client",
        &["ebpf-common", "api", "fleet"],
        &["axum", "clap", "aya"],
    ),
    (
        "fleet",
        &["ebpf-common", "api", "config"],
        &["aya", "libc", "rustix", "tokio", "axum", "reqwest"],
    ),
    (
        "library",
        &["api"],
        &["aya", "libc", "rustix", "tokio", "axum", "reqwest"],
    ),
    ("compiler", &["ebpf-common"], &["aya", "axum"]),
    (
        "config",
        &["ebpf-common", "api"],
        &["aya", "libc", "rustix", "tokio", "axum"],
    ),
    (
        "access",
        &["ebpf-common", "api", "state-files"],
        &["aya", "libc", "axum", "hyper"],
    ),
    (
        "serve",
        &["ebpf-common", "api", "access", "state-files"],
        &["aya"],
    ),
    (
        "rules",
        &["ebpf-common", "api"],
        &["aya", "libc", "rustix", "tokio", "axum", "reqwest"],
    ),
    (
        "cli",
        &[
            "ebpf-common",
            "api",
            "client",
            "config",
            "fleet",
            "library",
            "rules",
        ],
        &["aya", "axum", "libc"],
    ),
    (
        "operator",
        &[
            "ebpf-common",
            "api",
            "client",
            "compiler",
            "config",
            "fleet",
            "library",
            "rules",
            "state-files",
            "streams",
        ],
        &["aya", "libc", "rustix"],
    ),
    (
        "streams",
        &["ebpf-common", "api", "client", "library", "rules"],
        &["aya", "libc", "rustix"],
    ),
    (
        "agent",
        &[
            "ebpf-common",
            "state-files",
            "faults",
            "api",
            "access",
            "exporter",
            "store",
            "windows",
            "kernel",
            "client",
            "compiler",
            "config",
            "library",
            "serve",
            "capture",
            "cli",
            "rules",
        ],
        &["aya", "kube"],
    ),
];

#[test]
fn crates_depend_on_each_other_one_way() -> Result<()> {
    for (name, may, may_not) in EDGES {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml"))?;
        for line in manifest.lines() {
            if let Some((dependency, _)) =
                line.strip_prefix("twinprobe-").and_then(|line| line.split_once(['.', ' ']))
                // For tests only.
                && !["test-attributes", "fuzz"].contains(&dependency)
            {
                assert!(may.contains(&dependency), "{name} depends on {dependency}");
            }
            assert!(
                !may_not.iter().any(|word| line.starts_with(word)),
                "{name} depends on {line}"
            );
        }
    }
    Ok(())
}

#[test]
fn only_the_kernel_and_the_confinement_of_the_compiler_have_unsafe_code() -> Result<()> {
    let unsafe_ones = ["kernel", "compiler", "agent"];
    for (name, ..) in EDGES
        .iter()
        .filter(|(name, ..)| !unsafe_ones.contains(name))
    {
        let library = fs::read_to_string(root().join("crates").join(name).join("src/lib.rs"))?;
        assert!(library.contains("#![forbid(unsafe_code)]"), "{name}");
    }
    assert!(
        fs::read_to_string(root().join("crates/agent/src/main.rs"))?
            .contains("#![forbid(unsafe_code)]")
    );
    let compiler = root().join("crates/compiler/src");
    assert!(fs::read_to_string(compiler.join("lib.rs"))?.contains("#![deny(unsafe_code)]"));
    for path in files(&compiler, ".rs")? {
        if path != compiler.join("confine/mod.rs") {
            let text = fs::read_to_string(&path)?;
            assert!(
                !text.contains("allow(unsafe_code"),
                "{} allows unsafe code",
                path.display()
            );
        }
    }
    Ok(())
}

/// A comparison with one hook silently decides for each future hook, but a match makes the compiler
/// ask. Hooks have no equality, so the compiler refuses `==`; this finds the forms that it takes.
#[test]
fn no_code_compares_hooks() -> Result<()> {
    let hooks = fs::read_to_string(root().join("crates/ebpf-common/src/hook.rs"))?;
    for name in ["ProgramKind", "Hook"] {
        let (before, _) = hooks
            .split_once(&format!("pub enum {name} {{"))
            .context(name)?;
        let derived = before
            .lines()
            .next_back()
            .context("its line of derived traits")?;
        assert_eq!(derived, "#[derive(Clone, Copy, Debug)]", "{name}");
        assert!(!hooks.contains(&format!("PartialEq for {name}")), "{name}");
    }
    for path in files(&root().join("crates"), ".rs")? {
        if path
            .iter()
            .any(|part| part == "tests" || part == "tests.rs")
        {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        for (number, line) in text.lines().enumerate() {
            let compares = line.contains("if let Hook::")
                || line.contains("if let ProgramKind::")
                || line.contains("matches!(")
                    && (line.contains("Hook::") || line.contains("ProgramKind::"));
            assert!(!compares, "{}:{}: {line}", path.display(), number + 1);
        }
    }
    Ok(())
}

/// The most lines of a function, and the functions that have more: each is one list of steps or
/// cases. A new function of that length must be divided.
const FUNCTION: usize = 60;
const LONG: [&str; 21] = [
    "agent/src/engine/deploy/attach.rs deploy",
    "agent/src/engine/deploy/load.rs load_all",
    "agent/src/engine/deploy/restore.rs take_over",
    "agent/src/engine/engine.rs deploy",
    "agent/src/engine/events/pump.rs read",
    "agent/src/engine/reading/close.rs store",
    "agent/src/engine/reading/metric.rs readers",
    "agent/src/limits/ledger.rs take_now",
    "agent/src/serve.rs serve",
    "agent/src/store/takeover.rs take_over",
    "client/src/convert/dechainy.rs probe",
    "config/src/metric.rs check",
    "kernel/src/admit/admission.rs describe",
    "kernel/src/admit/flow.rs step",
    "kernel/src/attach/dispatcher/dispatchers.rs add_to",
    "kernel/src/attach/dispatcher/mend.rs mend",
    "kernel/src/attach/dispatcher/program.rs build",
    "kernel/src/load/rewrite.rs rewrite",
    "serve/src/listen/listener.rs run",
    "windows/src/index/restore.rs restore",
    "windows/src/takeover.rs plan",
];

/// Returns the name of the function that begins in this line of formatted source.
fn begun(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split(' ').skip_while(|word| {
        [
            "pub",
            "pub(crate)",
            "pub(super)",
            "const",
            "async",
            "unsafe",
        ]
        .contains(word)
    });
    (words.next() == Some("fn"))
        .then(|| words.next())??
        .split(['(', '<'])
        .next()
}

#[test]
fn functions_are_short() -> Result<()> {
    let (mut functions, mut long) = (0, Vec::new());
    for path in files(&root().join("crates"), ".rs")? {
        if path
            .iter()
            .any(|part| part == "tests" || part == "tests.rs")
        {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let lines: Vec<&str> = text.lines().collect();
        for (first, line) in lines.iter().enumerate() {
            let Some(name) = begun(line) else { continue };
            let end = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
            // The end of a declaration without a body, or with a body of one line, is in the same
            // line.
            let is_one_line = line.ends_with(';') || line.ends_with('}');
            let length = lines[first..]
                .iter()
                .position(|line| *line == end)
                .map_or(1, |last| last + 1);
            functions += 1;
            if length > FUNCTION && !is_one_line {
                let path = path.strip_prefix(root().join("crates"))?;
                long.push(format!("{} {name}", path.display()));
            }
        }
    }
    long.sort();
    assert!(functions > 3000, "{functions} functions were read");
    assert_eq!(long, LONG, "functions of more than {FUNCTION} lines");
    Ok(())
}

/// Each promise of docs/exactness.md names the tests that hold it.
#[test]
fn the_tests_that_exactness_names_are_there() -> Result<()> {
    let text = fs::read_to_string(root().join("docs/exactness.md"))?;
    let (_, promises) = text
        .split_once("## Each promise and its test")
        .context("the promises")?;
    let (promises, _) = promises.split_once("## ").context("the next heading")?;
    let named: Vec<&str> = promises
        .split('`')
        .filter(|word| word.contains("::"))
        .collect();
    for name in &named {
        let file = root()
            .join("tests/tests")
            .join(name.replace("::", "/"))
            .with_extension("rs");
        let is_there = file.is_file() || file.with_extension("").is_dir();
        assert!(is_there, "{name}");
    }
    assert!(named.len() >= 15, "{named:?}");
    Ok(())
}

/// Each promise of docs/security.md names the test that holds it.
#[test]
fn the_tests_that_promises_name_are_there() -> Result<()> {
    let text = fs::read_to_string(root().join("docs/security.md"))?;
    let named = text
        .split('`')
        .filter(|word| word.starts_with("security/") || word.starts_with("requests/"));
    let mut count = 0;
    for name in named {
        assert!(root().join("tests/tests").join(name).is_file(), "{name}");
        count += 1;
    }
    assert!(count >= 20, "{count}");
    for file in files(&root().join("tests/tests/security"), ".rs")? {
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .context("a file has a name")?;
        let helps = matches!(name, "main.rs" | "scene.rs" | "guarded.rs" | "change.rs");
        assert!(
            helps || text.contains(&format!("security/{name}")),
            "docs/security.md does not name {name}"
        );
    }
    Ok(())
}

/// The test that tests/README.md shows is one that runs.
#[test]
fn the_test_to_copy_is_in_the_tree() -> Result<()> {
    let readme = fs::read_to_string(root().join("tests/README.md"))?;
    let shown = readme
        .split_once("```rust\n")
        .and_then(|(_, rest)| rest.split_once("```"));
    let (shown, _) = shown.context("tests/README.md shows a test")?;
    let test = fs::read_to_string(root().join("tests/tests/maps/first.rs"))?;
    assert!(
        shown.contains("#[test]") && test.ends_with(shown),
        "tests/README.md shows another test:\n{shown}"
    );
    Ok(())
}

/// Returns the paths that a path with alternatives in braces stands for.
pub fn alternatives(path: &str) -> Vec<String> {
    match path
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        Some((before, (inside, after))) => inside
            .split(',')
            .flat_map(|part| alternatives(&format!("{before}{part}{after}")))
            .collect(),
        None => vec![path.to_owned()],
    }
}

/// The map of the tree names files that are there.
#[test]
fn the_map_of_the_tree_is_true() -> Result<()> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md"))?;
    let (_, map) = text.split_once("## Where things are").context("the map")?;
    let (map, _) = map.split_once("\n## ").context("the next heading")?;
    let (mut names, mut gone) = (0, Vec::new());
    for row in map.lines().filter(|line| line.starts_with('|')) {
        // The column of places; code stands between backticks.
        for name in row
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.contains(".rs") || name.ends_with('/'))
        {
            for path in alternatives(name) {
                names += 1;
                let below = ["", "crates", "crates/cli/src", "bench"];
                if !below.iter().any(|directory| {
                    root()
                        .join(directory)
                        .join(path.trim_start_matches("../"))
                        .exists()
                }) {
                    gone.push(path);
                }
            }
        }
    }
    assert!(
        gone.is_empty() && names > 80,
        "CONTRIBUTING.md names files that are not there: {gone:?}; {names} in all"
    );
    Ok(())
}

/// The pages that a stranger reads first, and their most lines.
const SHORT: [(&str, usize); 3] = [
    ("README.md", 150),
    ("ARCHITECTURE.md", 200),
    ("tests/README.md", 30),
];

#[test]
fn the_first_pages_are_short() -> Result<()> {
    for (name, most) in SHORT {
        let lines = fs::read_to_string(root().join(name))?.lines().count();
        assert!(
            lines <= most,
            "{name} has {lines} lines, and {most} are the most"
        );
    }
    Ok(())
}

/// Packages of PyPI run as root, so each must be the version that was reviewed.
#[test]
fn what_comes_from_pypi_has_a_digest() -> Result<()> {
    let mut paths = files(&root().join("setup"), ".sh")?;
    for directory in ["tests/tests", "tests/kernels", "deploy"] {
        for ending in [".sh", ".rs"] {
            paths.extend(files(&root().join(directory), ending)?);
        }
    }
    let mut seen = 0;
    for path in paths
        .iter()
        .filter(|path| !path.ends_with("architecture.rs"))
    {
        let text = fs::read_to_string(path)?;
        let fetches = |line: &&str| {
            line.contains("bin/pip ")
                || line.contains("\"pip\", \"install\"")
                || line.contains("pip install")
        };
        for line in text.lines().filter(fetches) {
            assert!(
                line.contains("--require-hashes"),
                "{}: {line}",
                path.display()
            );
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen} commands");
    for path in files(&root().join("setup/requirements"), ".txt")? {
        let text = fs::read_to_string(&path)?;
        let names = text
            .lines()
            .filter(|line| line.contains("==") && !line.starts_with('#'));
        assert!(
            names.clone().count() > 3 && names.clone().all(|line| line.ends_with('\\')),
            "{}",
            path.display()
        );
    }
    Ok(())
}

/// The most files of a folder, without `mod.rs`, and the most lines of a file.
const FILES: usize = 13;
const LINES: usize = 450;

#[test]
fn folders_and_files_of_crates_are_small() -> Result<()> {
    let mut folders = std::collections::BTreeMap::<PathBuf, usize>::new();
    for path in files(&root().join("crates"), ".rs")? {
        let (lines, is_test) = (
            fs::read_to_string(&path)?.lines().count(),
            path.iter().any(|part| part == "tests"),
        );
        assert!(
            lines <= LINES || is_test || path.ends_with("tests.rs"),
            "{} has {lines} lines",
            path.display()
        );
        if path.file_name().is_some_and(|name| name != "mod.rs") {
            *folders
                .entry(path.parent().map(Path::to_owned).unwrap_or_default())
                .or_default() += 1;
        }
    }
    let large: Vec<_> = folders
        .into_iter()
        .filter(|(_, count)| *count > FILES)
        .collect();
    assert!(large.is_empty(), "more than {FILES} files: {large:?}");
    Ok(())
}
