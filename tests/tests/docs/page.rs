//! A page of the documentation as a list of steps: files to be saved, and commands with their
//! output.
//!
//! A block `console` has commands after `$ `, each with its output below. A command whose line ends
//! in a backslash continues in the next one. Any other block is saved if the text above it ends in
//! "as `NAME`:". A block that can't be run says why after its language: `console not-run: needs a
//! cluster`.

use std::ops::Range;

use anyhow::{Result, bail, ensure};

/// The mark of a block that is not run. The reason follows it.
const NOT_RUN: &str = "not-run: ";

/// Something to do, in the order of the page.
#[derive(Debug)]
pub enum Step {
    Save { name: String, text: String },
    Run(Command),
}

#[derive(Debug)]
pub struct Command {
    /// The number of its first line, from 1.
    pub line: usize,
    pub text: String,
    /// The output that the page shows.
    pub shown: Vec<String>,
    /// The numbers of these lines in the page, from 0.
    pub place: Range<usize>,
}

/// A fenced block: its language with the words after it, and its lines without the fences, numbered
/// from 0.
struct Block {
    info: String,
    place: Range<usize>,
}

/// Returns the steps of a page. Fails at a block of commands of another language, because the test
/// would not run the commands.
pub fn steps(text: &str) -> Result<Vec<Step>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut steps = Vec::new();
    for block in blocks(&lines)? {
        let (language, mark) = block.info.split_once(' ').unwrap_or((&block.info, ""));
        if let Some(reason) = mark.strip_prefix(NOT_RUN) {
            ensure!(
                reason.len() > 5,
                "line {}: a block that is not run needs a reason",
                block.place.start
            );
        } else if language == "console" {
            commands(&lines, block.place, &mut steps)?;
        } else if ["sh", "bash", "shell"].contains(&language)
            || lines[block.place.start].starts_with("$ ")
        {
            bail!(
                "line {}: a block of commands is `console`, and is run, or says `{NOT_RUN}`",
                block.place.start
            );
        } else if let Some(name) = name_above(&lines, block.place.start - 1) {
            let text = lines[block.place]
                .iter()
                .map(|line| format!("{line}\n"))
                .collect();
            steps.push(Step::Save { name, text });
        }
    }
    Ok(steps)
}

/// Returns the page with other outputs.
pub fn with_outputs(text: &str, outputs: &[(Range<usize>, Vec<String>)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (place, output) in outputs.iter().rev() {
        lines.splice(place.clone(), output.iter().cloned());
    }
    lines.join("\n") + "\n"
}

fn blocks(lines: &[&str]) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, usize)> = None;
    for (number, line) in lines.iter().enumerate() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        open = match open {
            None => Some((info.to_owned(), number + 1)),
            Some((info, start)) => {
                blocks.push(Block {
                    info,
                    place: start..number,
                });
                None
            }
        };
    }
    ensure!(open.is_none(), "a block has no end");
    Ok(blocks)
}

fn commands(lines: &[&str], place: Range<usize>, steps: &mut Vec<Step>) -> Result<()> {
    let mut number = place.start;
    while number < place.end {
        let Some(first) = lines[number].strip_prefix("$ ") else {
            bail!("line {}: a block of commands begins with `$ `", number + 1)
        };
        let (line, mut text) = (number + 1, first.to_owned());
        number += 1;
        while text.ends_with('\\') && number < place.end {
            text = format!("{text}\n{}", lines[number]);
            number += 1;
        }
        let start = number;
        while number < place.end && !lines[number].starts_with("$ ") {
            number += 1;
        }
        let shown = lines[start..number]
            .iter()
            .map(|&line| line.to_owned())
            .collect();
        steps.push(Step::Run(Command {
            line,
            text,
            shown,
            place: start..number,
        }));
    }
    Ok(())
}

/// Returns the file name under which readers save a block, if the text above its fence names one.
fn name_above(lines: &[&str], fence: usize) -> Option<String> {
    let above = lines[..fence].iter().rev().find(|line| !line.is_empty())?;
    let (_, name) = above.strip_suffix("`:")?.rsplit_once("as `")?;
    Some(name.to_owned())
}
