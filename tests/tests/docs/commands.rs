//! `docs/reference/commands.md`: the command line's own help.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::binary;

use crate::schema::cell;

const HEAD: &str = "# Reference: command line

<!-- written by `make reference` from the help of each command -->

The output of `twinprobe COMMAND -h` for each command; `twinprobe help COMMAND` has more. [The command line](../commands.md) explains the use of
commands. `twinprobe man DIRECTORY` writes the same as manual pages.
";

/// The word of an entry in the help, and its explanation.
type Entry = (String, String);

pub fn page() -> Result<String> {
    let all = help(&[])?;
    let client = entries(&all, "Client options:");
    let always = [entries(&all, "Logging:"), entries(&all, "Options:")].concat();
    let mut page = HEAD.to_owned();
    for (command, summary) in entries(&all, "Commands:")
        .into_iter()
        .filter(|(command, _)| command != "help")
    {
        let text = help(&[&command])?;
        let usage = text
            .lines()
            .find_map(|line| line.strip_prefix("Usage: "))
            .context("a usage")?;
        writeln!(
            page,
            "\n## `{command}`\n\n{}.\n\n```text\n{usage}\n```",
            summary.trim_end_matches('.')
        )?;
        let headings = text
            .lines()
            .filter(|line| line.ends_with(':') && !line.starts_with(' '));
        let own: Vec<Entry> = headings
            .flat_map(|heading| entries(&text, heading))
            .collect();
        let is_own = |entry: &&Entry| {
            !client.contains(entry)
                && !always.contains(entry)
                && entry.0 != "-h, --help"
                && entry.0 != "help"
        };
        table(
            &mut page,
            &own.iter().filter(is_own).cloned().collect::<Vec<_>>(),
        )?;
    }
    writeln!(page, "\n## Options of commands that talk to a daemon")?;
    table(&mut page, &client)?;
    writeln!(page, "\n## Options of every command")?;
    table(&mut page, &always)?;
    Ok(page)
}

fn help(words: &[&str]) -> Result<String> {
    let output = Command::new(binary()?)
        .args(words)
        .arg("-h")
        .env_clear()
        .output()?;
    ensure!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the entries below a heading of a help. The explanation of an entry is beside or below
/// it.
fn entries(help: &str, heading: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in help
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.is_empty())
    {
        let (word, meaning) = line
            .trim_start()
            .split_once("  ")
            .unwrap_or((line.trim_start(), ""));
        match entries.last_mut() {
            Some((_, text)) if line.starts_with("          ") => text.push_str(line.trim_start()),
            _ => entries.push((word.to_owned(), meaning.trim().to_owned())),
        }
    }
    entries
}

fn table(page: &mut String, entries: &[Entry]) -> Result<()> {
    if !entries.is_empty() {
        writeln!(page, "\n| | |\n|---|---|")?;
    }
    for (word, meaning) in entries {
        // Angle brackets outside code would be HTML.
        let meaning = cell(meaning).replace('<', "&lt;");
        writeln!(page, "| `{}` | {meaning} |", cell(word))?;
    }
    Ok(())
}
