//! The lists of helper functions are in the documentation as well.

use std::fs;
use std::path::Path;

use twinprobe_ebpf_common::hook::ProgramKind;

use crate::admit::functions::FUNCTIONS;
use crate::admit::helpers;

#[test]
fn each_helper_function_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = fs::read_to_string(path).unwrap();
    let mut known = 0;
    for kind in [ProgramKind::Xdp, ProgramKind::Tc] {
        for (_, name) in (0..300).filter_map(|number| helpers::effect(number, kind)) {
            known += 1;
            assert!(
                text.contains(&format!("`{name}`")),
                "{name} is not documented"
            );
        }
    }
    assert!(known > 100, "{known}");
    for function in FUNCTIONS {
        assert!(
            text.contains(&format!("`{}`", function.name)),
            "{} is not documented",
            function.name
        );
    }
}
