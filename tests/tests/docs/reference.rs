//! The pages below `docs/reference/`, which are generated from their subjects: the schema, the
//! command line's own help, and the metrics of a daemon. `UPDATE_GOLDEN=1` (`make reference`)
//! writes them.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{commands, configuration, metrics, rest};

/// Compares a page with its expected text, or writes the text into the page.
fn hold(name: &str, wanted: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/reference")
        .join(name);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(&path, wanted).context(path.display().to_string());
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    for (number, (is, line)) in present.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(
            is,
            line,
            "{name}:{} is not current; `make reference` writes it",
            number + 1
        );
    }
    assert_eq!(
        present.len(),
        wanted.len(),
        "{name} is not current; `make reference` writes it"
    );
    Ok(())
}

#[test]
fn the_reference_of_configurations_is_that_of_the_schema() -> Result<()> {
    hold("configuration.md", &configuration::page()?)
}

#[test]
fn the_reference_of_requests_is_that_of_the_schema() -> Result<()> {
    hold("rest.md", &rest::page()?)
}

#[test]
fn the_reference_of_commands_is_that_of_their_help() -> Result<()> {
    hold("commands.md", &commands::page()?)
}

#[test]
fn the_reference_of_metrics_is_that_of_a_daemon() -> Result<()> {
    hold("metrics.md", &metrics::page()?)
}
