//! Each experiment runs, and what it checks holds.

use std::process::Command;

use anyhow::Result;

#[test]
fn each_experiment_runs() -> Result<()> {
    let program = env!("CARGO_BIN_EXE_twinprobe-bench");
    let listed = Command::new(program).arg("--list").output()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("benchmarks.md");
    let output = Command::new(program).arg("--quick").arg("--output").arg(&file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    println!("{said}");
    let text = std::fs::read_to_string(&file)?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in names.lines() {
        assert!(text.contains(&format!("<!-- bench: {name} -->")), "{name}: {text}");
    }
    // A figure that a section shows has been drawn.
    for figure in text.split("](figures/").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(directory.path().join("figures").join(figure).is_file(), "{figure}");
    }
    assert!(names.lines().count() >= 9, "{names}");
    assert_eq!(text.matches("A quick run").count(), names.lines().count());
    Ok(())
}
