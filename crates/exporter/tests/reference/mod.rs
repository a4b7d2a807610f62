//! The reference parser of OpenMetrics, `prometheus_client` of PyPI.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

const PACKAGE: &str = "prometheus-client";

/// Reads `documents`, a JSON list of texts, and answers with a list of their families: name, type,
/// help and samples (name, labels, value as text).
const SCRIPT: &str = r"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
result = []
for text in json.load(sys.stdin):
    try:
        families = list(text_string_to_metric_families(text))
    except Exception as error:
        sys.exit(f'{error!r}\n{text}')
    result.append([[f.name, f.type, f.documentation,
                    [[s.name, s.labels, str(s.value)] for s in f.samples]] for f in families])
json.dump(result, sys.stdout)
";

/// Returns the parser's result for each document; panics if the parser refuses one.
pub fn parse(documents: &[&str]) -> serde_json::Value {
    let mut child = Command::new(&*PYTHON)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let input = serde_json::to_vec(documents).expect("texts are JSON");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(&input)
        .expect("python3 reads its input");
    let output = child.wait_with_output().expect("python3 ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("an answer in JSON")
}

/// A Python that has the parser: the system's, else one in an environment in the target directory.
static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    let system = PathBuf::from("python3");
    if has_parser(&system) {
        return system;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(directory).expect("a directory");
    let environment = directory.join("openmetrics-parser");
    let python = environment.join("bin/python3");
    // Tests are processes that run side by side: one makes the environment, and the others wait for
    // it.
    let lock =
        File::create(directory.join("openmetrics-parser.lock")).expect("a file for the lock");
    lock.lock().expect("the lock");
    if !has_parser(&python) {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment));
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", PACKAGE]));
    }
    python
});

fn has_parser(python: &Path) -> bool {
    let output = Command::new(python)
        .args(["-c", "import prometheus_client.openmetrics.parser"])
        .output();
    output.is_ok_and(|output| output.status.success())
}

fn run(command: &mut Command) {
    let output = command.output().expect("python3 is installed");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?} (Debian: apt-get install python3-venv): {out}{err}"
    );
}
