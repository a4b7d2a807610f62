//! Mistakes are shown where they are, with what to write instead.

use anyhow::Result;
use serde_json::json;

use crate::scene::{SOURCE, Scene, outcome};

const CHECK: &str = "    if (!counters) return XDP_PASS; /* a place for a mistake */\n";

#[test]
fn mistakes_are_shown_at_the_users_own_line_with_what_to_write() -> Result<()> {
    let scene = Scene::new()?;
    let without_check = SOURCE.replace(CHECK, "");
    for (source, place, code, hint) in [
        (
            without_check.clone(),
            "count.bpf.c:19:5: error: ",
            "__sync_fetch_and_add(&counters->packets, 1);",
            "hint: a lookup may find nothing: `if (!counters) return XDP_PASS;` before counters is used",
        ),
        (
            SOURCE.replace(
                CHECK,
                "    if (*(__u8 *)data == 4)\n        return XDP_PASS;\n",
            ),
            "count.bpf.c:19:9: error: ",
            "if (*(__u8 *)data == 4)",
            "hint: compare with the end of the packet before the access: `if ((void *)(data + 1) > data_end) return XDP_PASS;`",
        ),
        (
            SOURCE.replace(CHECK, "    if (data == ETH_P_IP) return 1;\n"),
            "count.bpf.c:19:17: error: use of undeclared",
            "if (data == ETH_P_IP) return 1;",
            "hint: write `#include <linux/if_ether.h>` above",
        ),
    ] {
        scene.write("count.bpf.c", &source)?;
        for command in ["validate", "apply"] {
            let refused = scene.run(&format!("{command} -f count.yaml"))?;
            assert_eq!(refused.code, 1, "{}", refused.out);
            let lines: Vec<&str> = refused.err.lines().collect();
            let at = lines.iter().position(|line| line.starts_with(place));
            let at = at.unwrap_or_else(|| panic!("{place}: {}", refused.err));
            assert!(
                lines[at + 1].starts_with("   19 | ") && lines[at + 1].ends_with(code),
                "{}",
                refused.err
            );
            let column: usize = place.split(':').nth(2).unwrap().parse()?;
            assert_eq!(
                lines[at + 2].find('^'),
                Some("   19 | ".len() + column - 1),
                "{}",
                refused.err
            );
            assert_eq!(lines[at + 3], hint);
            assert!(
                refused.err.ends_with("lines: --verbose shows it\n") && lines.len() < 12,
                "{}",
                refused.err
            );
            assert!(
                !refused.err.contains('\u{1b}'),
                "a pipe gets no colours: {}",
                refused.err
            );
        }
        let verbose = scene.run("--verbose validate -f count.yaml")?.err;
        assert!(
            verbose.lines().count() > 8 && !verbose.contains("--verbose"),
            "{verbose}"
        );
        assert!(
            !verbose.contains("probe.c") && verbose.matches("count.bpf.c:").count() > 0,
            "{verbose}"
        );
    }
    // Other clients get the same answer.
    let config = json!({ "interface": "mon0", "ingress": { "source": without_check,
        "metrics": [{ "name": "seen", "map": "seen" }] } });
    let problem = scene
        .daemon
        .post("/v1/validate", &config)
        .expect(422)
        .json();
    let hint = problem["errors"][0]["hint"].as_str().unwrap_or_default();
    assert!(
        hint.contains("`if (!counters) return XDP_PASS;`"),
        "{problem}"
    );
    Ok(())
}

#[test]
fn terminals_get_colours_unless_the_user_wants_none() -> Result<()> {
    let scene = Scene::new()?;
    scene.write("count.bpf.c", &SOURCE.replace(CHECK, ""))?;
    let on_a_terminal = |no_color: &str| {
        let program = scene.daemon.client_command(&[])?;
        let program = program.get_program().to_owned();
        let line = format!("{} validate -f count.yaml", program.to_string_lossy());
        let mut command = scene.daemon.client_command(&[])?;
        let mut script = std::process::Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .current_dir(scene.folder.path())
            .env("NO_COLOR", no_color);
        script.env("TERM", "xterm").envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command.current_dir(".");
        outcome(&mut script)
    };
    let coloured = on_a_terminal("")?;
    assert!(
        coloured.out.contains("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m"),
        "{:?}",
        coloured.out
    );
    let plain = on_a_terminal("1")?;
    // The progress display of long commands clears its line, which does not count as a colour.
    let text = plain.out.replace("\u{1b}[2K", "");
    assert!(
        text.contains("error: ") && !text.contains("\u{1b}["),
        "{:?}",
        plain.out
    );
    Ok(())
}
