//! The commands in the READMEs of the library succeed. The tests of the library compare their
//! outputs with captures.

use std::ops::Range;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::probes;

use crate::page::{Command, Step};
use crate::shell;

/// The names that READMEs give the interfaces of their readers, and the interfaces on the machine
/// of the tests.
const INTERFACES: [(&str, &str); 3] = [("IFACE1", "near0"), ("IFACE2", "lo"), ("IFACE", "near0")];

/// A README whose commands follow events without an end.
const ENDLESS: &str = "sampled-headers";

/// The number of READMEs whose commands run on one machine, one after the other.
const TOGETHER: usize = 10;

#[test]
fn the_commands_of_the_librarys_readmes_succeed() -> Result<()> {
    let names: Vec<String> = probes::names()?
        .into_iter()
        .filter(|name| name != ENDLESS)
        .collect();
    thread::scope(|scope| {
        let parts: Vec<_> = names
            .chunks(TOGETHER)
            .map(|names| scope.spawn(|| check(names)))
            .collect();
        parts
            .into_iter()
            .try_for_each(|part| part.join().expect("no thread panics"))
    })
}

fn check(names: &[String]) -> Result<()> {
    let mut commands = vec![
        "sh docs/lab.sh".to_owned(),
        "twinprobe serve 2> serve.log &".to_owned(),
        "until grep -qs listening serve.log; do sleep 0.1; done".to_owned(),
    ];
    for name in names {
        let before = commands.len();
        for block in probes::readme(name)?.split("```sh\n").skip(1) {
            let block = block.split("```").next().context("a block ends")?;
            let block = INTERFACES
                .iter()
                .fold(block.to_owned(), |block, (theirs, ours)| {
                    block.replace(theirs, ours)
                });
            // With `pipefail` a pipe fails if any part of it does.
            commands.push(format!(
                "(set -e -o pipefail; cd probes/{name}\n{block}) 2>&1"
            ));
        }
        ensure!(commands.len() > before, "{name} shows no commands");
        commands.push(format!("twinprobe delete {name}"));
    }
    let step = |text: &String| {
        let text = format!("{text}\nset -- $?; echo; echo status $1");
        Step::Run(Command {
            line: 0,
            text,
            shown: Vec::new(),
            place: Range::default(),
        })
    };
    let printed = shell::run(&commands.iter().map(step).collect::<Vec<_>>())?;
    for (number, command) in commands.iter().enumerate() {
        let printed = printed
            .get(number)
            .with_context(|| format!("did not end: {command}"))?;
        let succeeded = printed.last().is_some_and(|line| line == "status 0");
        ensure!(succeeded, "{command}\n{}", printed.join("\n"));
    }
    Ok(())
}
