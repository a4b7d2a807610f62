//! Hostile sources: they learn neither the content of this host's files nor which files exist.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, xdp_counter};
use twinprobe_tests::{Bystanders, Daemon, Topology};

/// The ways to name a file in a source: `FILE` stands for its path.
const WAYS: &[&str] = &[
    "#include \"FILE\"\n",
    "#include <FILE>\n",
    "#include_next <FILE>\n",
    "#import \"FILE\"\n",
    "#include \"/usr/include/../..FILE\"\n",
    "#include <linux/../../..FILE>\n",
    "#define NAME <FILE>\n#include NAME\n",
    "#if __has_include(\"FILE\")\n#error there\n#endif\n",
    "#if __has_include(\"/usr/include/linux/../../..FILE\")\n#error there\n#endif\n",
    "#if __has_include_next(<FILE>)\n#error there\n#endif\n",
    "const char x[] = {\n#embed \"FILE\"\n};\n",
    "#if __has_embed(\"FILE\")\n#error there\n#endif\n",
    "#pragma GCC dependency \"FILE\"\n",
    "#pragma clang module load FILE\n",
    "#pragma clang module import FILE\n",
    "asm(\".incbin \\\"FILE\\\"\");\n",
    "asm(\".incbin \\\"/usr/include/../..FILE\\\"\");\n",
    "asm(\".include \\\"FILE\\\"\");\n",
    "int f(void) { asm volatile(\".incbin \\\"FILE\\\"\"); return 0; }\n",
    "#line 1 \"FILE\"\nint f(void)\n{\n\treturn 0;\n}\n",
    "#line 1 \"FILE\"\nint f(void)\n{\n\treturn y;\n}\n",
];

fn validate(daemon: &Daemon, source: &str) -> (u16, Value) {
    let config = json!({ "interface": "mon0", "ingress": { "source": source } });
    let answer = daemon.post("/v1/validate", &config);
    (answer.status, answer.json())
}

/// An existing file gives the same answer as a missing one, for any reader.
#[test]
fn which_files_there_are_can_not_be_asked() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    let [there, hidden, missing] =
        ["there", "hide0", "noone"].map(|name| directory.path().join(name));
    fs::write(&there, "int of_this_host;\n")?;
    fs::write(&hidden, "int of_this_host;\n")?;
    fs::set_permissions(&there, fs::Permissions::from_mode(0o644))?;
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600))?;
    let log = |path: &Path| path.display().to_string();
    for way in WAYS {
        let ask = |path: &str| {
            let (status, answer) = validate(&daemon, &way.replace("FILE", path));
            // Columns and carets depend only on the length of the path, which stays the same.
            (status, answer.to_string().replace(path, "FILE"))
        };
        let expected = ask(&log(&missing));
        for path in [&there, &hidden] {
            let answer = ask(&log(path));
            assert!(!answer.1.contains("of_this_host"), "{way}: {}", answer.1);
            assert_eq!(answer, expected, "{way}: {}", path.display());
        }
        // Files that every Linux has, and names of the same length that do not exist.
        for (path, missing) in [
            ("/etc/passwd", "/etc/passwe"),
            ("/usr/lib/os-release", "/usr/lib/os-releasf"),
            ("/proc/self/environ", "/proc/self/enviroo"),
            ("/dev/zero", "/dev/zerp"),
        ] {
            assert_eq!(ask(path), ask(missing), "{way}: {path}");
        }
    }
    bystanders.finish()
}

/// Debug information may quote the file that a line names as its own.
#[test]
fn objects_have_nothing_of_this_host() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    let path = directory.path().join("secret");
    fs::write(&path, "a secret of this host\n".repeat(40))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    let mut config = counter_config("mon0", "XDP_PASS");
    let source = xdp_counter("XDP_PASS");
    let source = source.replace(
        "SEC(\"xdp\")",
        &format!("\n#line 1 \"{}\"\nSEC(\"xdp\")", path.display()),
    );
    config["ingress"]["source"] = source.into();
    daemon.put("/v1/probes/p", &config).expect(201);
    let mut objects = 0;
    for entry in fs::read_dir(daemon.directories().state().join("objects"))? {
        let object = fs::read(entry?.path())?;
        assert!(
            !object.windows(8).any(|bytes| bytes == b"a secret"),
            "the object quotes the file"
        );
        objects += 1;
    }
    assert!(objects > 0);
    Ok(())
}

/// A define is one argument of the compiler, and never a file of arguments, an option or another
/// line.
#[test]
fn defines_are_defines() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    let file = directory.path().join("arguments");
    fs::write(&file, "-DOF_THIS_HOST\n")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    let file = file.to_str().context("UTF-8")?;
    let ask = |name: &str, value: &str, line: &str| {
        let mut config = counter_config("mon0", "XDP_PASS");
        config["ingress"]["source"] = (xdp_counter("XDP_PASS") + line).into();
        config["ingress"]["defines"] = json!({ name: value });
        let answer = daemon.post("/v1/validate", &config);
        (answer.status, answer.text().to_owned())
    };
    for value in [
        format!("@{file}"),
        format!("1 @{file}"),
        format!("1 -fplugin={file}"),
        format!("`cat {file}`"),
    ] {
        let (status, text) = ask(
            "A",
            &value,
            "#ifdef OF_THIS_HOST\n#error its arguments are read\n#endif\n",
        );
        assert_eq!(status, 200, "{value}: {text}");
    }
    for name in [
        &format!("@{file}"),
        "A -fplugin=x",
        "A\n#include",
        "-o",
        "",
        "A=1 -I/",
    ] {
        let (status, text) = ask(name, "1", "");
        assert_eq!(status, 422, "{name}: {text}");
    }
    let (status, text) = ask("A", &format!("1\n#include \"{file}\""), "");
    assert_eq!(status, 422, "{text}");
    // A text that is not a define is not an option either: the macro has it as text.
    let (status, text) = ask(
        "A",
        "-DOF_THIS_HOST",
        "#ifdef OF_THIS_HOST\n#error an option\n#endif\n",
    );
    assert_eq!(status, 200, "{text}");
    Ok(())
}

/// A source that makes clang itself fail or print without end is refused, and the next source
/// compiles.
#[test]
fn failures_of_clang_and_floods_are_refusals() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    for source in [
        "#pragma clang __debug crash\n".to_owned(),
        "#pragma clang __debug parser_crash\nint x;\n".to_owned(),
        "#pragma clang __debug llvm_fatal_error\n".to_owned(),
        "#pragma clang __debug llvm_unreachable\n#error\n".to_owned(),
        format!(
            "{}#error end\n",
            "#pragma message \"flood\"\n".repeat(20_000)
        ),
        "typedef int v __attribute__((vector_size(1 << 30))); v f(v a) { return a * a; }\n#error\n"
            .to_owned(),
        "char a[1 << 30] = { [0 ... (1 << 30) - 1] = 1 };\n".to_owned(),
        "int f(void) { asm volatile(\".rept 100000000\\n r0 = 0\\n .endr\"); return 0; }\n"
            .to_owned(),
    ] {
        let (status, answer) = validate(&daemon, &source);
        let what: String = source.chars().take(80).collect();
        assert_eq!(status, 422, "{what}: {answer}");
        let length = answer.to_string().len();
        assert!(length < 1 << 20, "{what}: an answer of {length} bytes");
        let text = answer.to_string();
        assert!(
            !text.contains("/tmp/") && !text.contains("Stack dump"),
            "{what}: {text}"
        );
    }
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    bystanders.finish()
}
