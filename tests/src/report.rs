//! The output of benchmarks: Markdown, in sections that can be run one by one.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// A section's name on the command line, and the function that runs it.
pub type Section = (&'static str, fn() -> Result<()>);

/// Runs the sections that the program's arguments name, all if they name none.
pub fn run(sections: &[Section]) -> Result<()> {
    // Options are skipped because cargo passes --bench.
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for name in &chosen {
        let names = sections.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        ensure!(sections.iter().any(|(section, _)| section == name), "no section {name}; there are {names}");
    }
    machine()?;
    for (name, run) in sections {
        if chosen.is_empty() || chosen.iter().any(|chosen| chosen == name) {
            let started = Instant::now();
            run()?;
            eprintln!("{name}: {:.0} s", started.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// Prints when and on what kind of machine the benchmark runs: enough to compare runs, nothing that names the machine.
fn machine() -> Result<()> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release = release.trim().split('-').next().unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("processor", |(_, model)| model.trim());
    let virtual_machine = if cpuinfo.contains(" hypervisor") { ", virtual machine" } else { "" };
    let cpus = std::thread::available_parallelism()?;
    println!("{}, Linux {release}, {cpus} CPUs ({model}{virtual_machine}), {}.", date()?, clang()?);
    Ok(())
}

fn date() -> Result<String> {
    first_line(Command::new("date").args(["-u", "+%Y-%m-%d"]))
}

fn clang() -> Result<String> {
    let version = first_line(Command::new("clang").arg("--version"))?;
    let number = version.split_once("version ").and_then(|(_, rest)| rest.split([' ', '-']).next());
    Ok(format!("clang {}", number.unwrap_or("of unknown version")))
}

fn first_line(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {:?}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// Prints the title of a section and how it measures.
pub fn section(title: &str, method: &str) {
    println!("\n## {title}\n\n{method}\n");
}

/// Prints the head of a table. Its rows are printed as the results come.
pub fn table(columns: &[&str]) {
    row(columns);
    row(&vec!["---"; columns.len()]);
}

/// Prints a row of a table.
pub fn row<T: AsRef<str>>(cells: &[T]) {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    println!("| {} |", cells.join(" | "));
}

/// Returns the table cell that tells whether a target is reached.
pub fn verdict(reached: bool) -> &'static str {
    if reached { "yes" } else { "**no**" }
}
