//! Each experiment runs, and its checks succeed.

use std::process::Command;

use anyhow::{Context as _, Result};

#[test]
fn each_experiment_runs() -> Result<()> {
    let program = env!("CARGO_BIN_EXE_twinprobe-bench");
    let listed = Command::new(program).arg("--list").output()?;
    let directory = tempfile::tempdir()?;
    let output = Command::new(program)
        .arg("--quick")
        .arg("--output")
        .arg(directory.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    println!("{said}");
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in names.lines() {
        let page = directory.path().join(format!("{name}.md"));
        let text =
            std::fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
        assert_eq!(text.matches("A quick run").count(), 1, "{name}: {text}");
        // A figure that a page shows has been drawn.
        for figure in text
            .split("](figures/")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            assert!(
                directory.path().join("figures").join(figure).is_file(),
                "{name}: {figure}"
            );
        }
    }
    assert!(
        directory.path().join("claims.md").is_file(),
        "no table of claims"
    );
    assert!(names.lines().count() >= 9, "{names}");
    Ok(())
}
