//! Tests with the clang of this machine.

mod beside;
mod time;

use std::path::Path;
use std::time::Instant;

use std::collections::BTreeMap;

use twinprobe_ebpf_common::hook::{Hook, Verdict};

use super::*;
use twinprobe_ebpf_common::unit::{Calls, Dialect};

fn compiler() -> Compiler {
    Compiler::discover(false).expect("the tests need clang")
}

static NO_CALLS: Calls = Calls::new();

static NO_FILES: BTreeMap<String, String> = BTreeMap::new();

/// A source for libbpf.
fn unit<'a>(field: &'a str, source: &'a str, defines: &'a BTreeMap<String, String>) -> Unit<'a> {
    let dialect = Dialect::Libbpf;
    let (hook, verdict) = (Hook::Xdp, Verdict::Observe);
    Unit {
        field,
        source,
        files: &NO_FILES,
        defines,
        dialect,
        entry: None,
        calls: &NO_CALLS,
        other: None,
        hook,
        verdict,
        frags: true,
    }
}

async fn compile(source: &str) -> Result<CompiledObject, Rejection> {
    compiler()
        .compile(&unit("ingress.source", source, &BTreeMap::new()))
        .await
}

async fn refused(source: &str) -> Rejection {
    compile(source)
        .await
        .expect_err("this source must not compile")
}

const PROBE: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, __u64);
         __uint(max_entries, N); } packets SEC(".maps");
SEC("xdp") int count(struct xdp_md *ctx)
{
    __u32 zero = 0;
    __u64 *n = bpf_map_lookup_elem(&packets, &zero);
    if (n) __sync_fetch_and_add(n, 1);
    return XDP_PASS;
}
char _license[] SEC("license") = "GPL";
"#;

fn defines(value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("N".to_owned(), value.to_owned())])
}

#[tokio::test]
async fn a_probe_compiles_with_its_defines() {
    let compiler = compiler();
    assert!(compiler.version.contains("clang"));
    let one = compiler
        .compile(&unit("ingress.source", PROBE, &defines("1")))
        .await
        .unwrap();
    assert!(one.elf.starts_with(b"\x7fELF"));
    assert_eq!(one.warnings, []);
    let again = compiler
        .compile(&unit("egress.source", PROBE, &defines("1")))
        .await
        .unwrap();
    assert_eq!(one.elf, again.elf, "the same source gives the same object");
    let two = compiler
        .compile(&unit("ingress.source", PROBE, &defines("2")))
        .await
        .unwrap();
    assert_ne!(one.elf, two.elf);
    let wrong = compiler
        .compile(&unit("ingress.source", PROBE, &defines("(")))
        .await
        .unwrap_err();
    assert_eq!(wrong.findings[0].line, Some(4));
}

fn section<'a>(elf: &'a [u8], name: &str) -> &'a [u8] {
    use object::{Object as _, ObjectSection as _};
    let file = object::File::parse(elf).unwrap();
    file.section_by_name(name).unwrap().data().unwrap()
}

#[tokio::test]
async fn objects_name_the_source_by_its_own_name() {
    let object = compiler()
        .compile(&unit("ingress.source", PROBE, &defines("1")))
        .await
        .unwrap();
    let contains = |needle: &[u8]| {
        object
            .elf
            .windows(needle.len())
            .any(|window| window == needle)
    };
    assert!(contains(b"probe.c"));
    assert!(contains(b".BTF"));
    assert!(!contains(b"<stdin>"));
    // BTF keeps the lines of the source, which the verifier's log quotes.
    let btf = section(&object.elf, ".BTF");
    let contains = |needle: &str| {
        btf.windows(needle.len())
            .any(|window| window == needle.as_bytes())
    };
    assert!(contains("    if (n) __sync_fetch_and_add(n, 1);\0"));
}

#[tokio::test]
async fn errors_have_the_users_lines() {
    let first = refused("int x = ;\n").await;
    assert_eq!(
        (first.findings[0].line, first.findings[0].column),
        (Some(1), Some(9))
    );
    assert_eq!(first.findings[0].message, "expected expression");
    let second = refused("int x;\r\nint f(void) { return y; }").await;
    assert_eq!(
        (second.findings[0].line, second.findings[0].column),
        (Some(2), Some(22))
    );
    assert!(second.log.unwrap().contains("int f(void) { return y; }"));
    let many = refused("int a = ;\nint b = ;\nint c = ;\n").await;
    assert_eq!(many.findings.len(), 3);
}

#[tokio::test]
async fn missing_headers_are_named() {
    let rejection = refused("#include <linux/bpf.h>\n#include <nope/missing.h>\n").await;
    assert_eq!(rejection.findings.len(), 1);
    let finding = &rejection.findings[0];
    assert_eq!((finding.line, finding.column), (Some(2), Some(10)));
    assert!(finding.message.contains("'nope/missing.h' file not found"));
}

#[tokio::test]
async fn errors_inside_headers_point_to_the_include() {
    let directory = tempfile::tempdir().unwrap();
    let header = directory.path().join("broken.h");
    std::fs::write(&header, "\nint broken = ;\n").unwrap();
    let header = header.display();
    // The header is outside the directories that a confined compiler sees.
    let compiler = Compiler {
        confinement: Confinement::default(),
        include: Vec::new(),
        ..compiler()
    };
    let source = format!("int x;\n#include \"{header}\"\n");
    let refused = compiler
        .compile(&unit("ingress.source", &source, &BTreeMap::new()))
        .await
        .unwrap_err();
    let finding = &refused.findings[0];
    assert_eq!(finding.line, Some(2));
    assert_eq!(
        finding.message,
        format!("in {header}:2: expected expression")
    );
}

/// The first declaration comes from a macro of a header, and the headers have inline assembly.
#[tokio::test]
async fn a_source_for_all_hooks_compiles_for_each() {
    let source = r#"#include <twinprobe.h>
TP_HASH(flows, struct tp_flow, struct tp_counters, 16);
TP_PROBE(probe, packet)
{
    struct tp_flow flow;

    tp_parse(packet);
    if (tp_decapsulate(packet) && tp_flow(packet, &flow))
        tp_count(flows, &flow, tp_length(packet));
    return TP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    let compiler = compiler();
    let mut objects = Vec::new();
    for hook in Hook::ALL {
        for frags in [true, false] {
            let defines = BTreeMap::new();
            let unit = Unit {
                hook,
                frags,
                dialect: Dialect::Auto,
                ..unit("ingress.source", source, &defines)
            };
            let object = compiler.compile(&unit).await.unwrap();
            assert_eq!(object.warnings, [], "{hook:?}");
            let program = match (hook, frags) {
                (Hook::Xdp, true) => "xdp.frags",
                (Hook::Xdp, false) => "xdp",
                (Hook::TcIngress | Hook::TcEgress, _) => "tc",
            };
            assert!(!section(&object.elf, program).is_empty());
            objects.push(section(&object.elf, program).to_vec());
        }
    }
    assert_ne!(
        objects[0], objects[1],
        "XDP with and without several buffers"
    );
    assert_eq!(
        [&objects[2], &objects[4]],
        [&objects[3], &objects[5]],
        "TC has no such packets"
    );
}

#[tokio::test]
async fn the_backends_refusals_are_findings() {
    let division = refused("long f(long a, long b)\n{\n    return a / b;\n}\n").await;
    assert_eq!(division.findings[0].line, Some(3));
    assert!(division.findings[0].message.contains("signed division"));
    assert!(!division.log.unwrap().contains("Stack dump"));
    let float = refused("double f(double a) { return a * 2.5; }\n").await;
    assert_eq!(float.findings[0].line, Some(1));
}

#[tokio::test]
async fn a_crash_is_a_refusal() {
    let source = format!("int x = {}1;\n", "~".repeat(200_000));
    let rejection = refused(&source).await;
    assert_eq!(rejection.findings.len(), 1);
}

#[tokio::test]
async fn warnings_do_not_refuse() {
    let object = compile("int f(void) { int unused; return 1; }\n")
        .await
        .unwrap();
    assert_eq!(object.warnings.len(), 1);
    assert_eq!(object.warnings[0].line, Some(1));
    assert!(
        object.warnings[0]
            .message
            .contains("unused variable 'unused'")
    );
}

#[tokio::test]
async fn a_comment_compiles_to_an_object_without_programs() {
    assert!(
        compile("// nothing")
            .await
            .unwrap()
            .elf
            .starts_with(b"\x7fELF")
    );
}

#[tokio::test]
async fn sizes_are_limited() {
    let mut compiler = compiler();
    compiler.limits.object = 1 << 20;
    let big = "char big[2 << 20] = { 1 };\n";
    let rejection = compiler
        .compile(&unit("ingress.source", big, &BTreeMap::new()))
        .await
        .unwrap_err();
    assert_eq!(
        rejection.findings[0].message,
        "the compiled object is larger than 1 MiB"
    );

    compiler.limits.log = 1000;
    let noisy = "#warning noise\n".repeat(2000) + "#error end\n";
    let rejection = compiler
        .compile(&unit("ingress.source", &noisy, &BTreeMap::new()))
        .await
        .unwrap_err();
    let log = rejection.log.unwrap();
    assert!(log.len() < 1100, "{} bytes", log.len());
    assert!(log.contains("more bytes"));
    assert!(!rejection.findings.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_compile_at_once() {
    let mut compiler = compiler();
    // A hundred compilations share a machine that may be busy.
    compiler.limits.time = Duration::from_secs(600);
    // The source is larger than a pipe, so that writing and reading must overlap.
    let source = format!(
        "{}int x = 1;\n",
        "// padding padding padding\n".repeat(8000)
    );
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..100 {
        let (compiler, source) = (compiler.clone(), source.clone());
        tasks.spawn(async move {
            let define = BTreeMap::from([("I".to_owned(), i.to_string())]);
            compiler
                .compile(&unit("ingress.source", &source, &define))
                .await
                .map(|object| object.elf.len())
        });
    }
    while let Some(result) = tasks.join_next().await {
        assert!(result.unwrap().unwrap() > 0);
    }
}

#[tokio::test]
async fn a_compiler_that_reads_nothing_does_not_block() {
    let mut compiler = Compiler {
        confinement: Confinement::default(),
        ..compiler()
    };
    compiler.clang = "/bin/false".into();
    let source = "// x\n".repeat(100_000);
    let rejection = compiler
        .compile(&unit("ingress.source", &source, &BTreeMap::new()))
        .await
        .unwrap_err();
    assert!(
        rejection.findings[0].message.contains("failed"),
        "{rejection:?}"
    );
    compiler.clang = "/nonexistent/clang".into();
    let rejection = compiler
        .compile(&unit("ingress.source", "int x;", &BTreeMap::new()))
        .await
        .unwrap_err();
    assert!(
        rejection.findings[0]
            .message
            .contains("could not run /nonexistent/clang")
    );
}

/// Returns the arguments of a shell that takes the place of clang: it writes its pid and sleeps.
fn sleeper(directory: &Path) -> Vec<OsString> {
    let script = format!(
        "echo $$ > {0}/new && mv {0}/new {0}/pid; exec sleep 60",
        directory.display()
    );
    vec!["-c".into(), script.into()]
}

/// Waits until the sleeper has started and returns its pid.
async fn pid(directory: &Path) -> String {
    loop {
        if let Ok(pid) = std::fs::read_to_string(directory.join("pid")) {
            return pid.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_child_over_its_time_is_killed_and_reaped() {
    let directory = tempfile::tempdir().unwrap();
    // On a busy machine the child may have no time to write its pid.
    for seconds in [1, 10, 50] {
        let limits = CompileLimits {
            time: Duration::from_secs(seconds),
            ..CompileLimits::default()
        };
        let outcome = child::run(
            "/bin/sh".as_ref(),
            &sleeper(directory.path()),
            b"",
            limits,
            &Confinement::default(),
            &Arc::default(),
        )
        .await
        .unwrap();
        assert!(matches!(outcome, ChildOutcome::TimedOut));
        if directory.path().join("pid").exists() {
            break;
        }
    }
    let pid = pid(directory.path()).await;
    assert!(!Path::new("/proc").join(pid).exists());
}

#[tokio::test]
async fn a_child_that_lingers_without_its_pipes_has_no_more_time() {
    // The pipes close within the limit, and the child would end within a second limit.
    let script = "sleep 0.7; exec >&- 2>&-; sleep 0.7";
    let limits = CompileLimits {
        time: Duration::from_secs(1),
        ..CompileLimits::default()
    };
    let arguments = ["-c", script].map(OsString::from);
    let outcome = child::run(
        "/bin/sh".as_ref(),
        &arguments,
        b"",
        limits,
        &Confinement::default(),
        &Arc::default(),
    )
    .await
    .unwrap();
    assert!(matches!(outcome, ChildOutcome::TimedOut));
}

#[tokio::test]
async fn nobody_waiting_means_no_child() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = sleeper(directory.path());
    let run = tokio::spawn(async move {
        let _ = child::run(
            "/bin/sh".as_ref(),
            &arguments,
            b"",
            CompileLimits::default(),
            &Confinement::default(),
            &Arc::default(),
        )
        .await;
    });
    let child = Path::new("/proc").join(pid(directory.path()).await);
    assert!(child.exists());
    run.abort();
    let deadline = Instant::now() + Duration::from_secs(120);
    while child.exists() {
        assert!(Instant::now() < deadline, "the child is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_headers_of_the_daemon_are_found_where_no_directory_has_them() {
    let source =
        format!("#include <twinprobe.h>\n#ifndef TWINPROBE_H\n#error none\n#endif\n{PROBE}");
    let object = compiler()
        .compile(&unit("ingress.source", &source, &defines("1")))
        .await
        .unwrap();
    assert_eq!(object.warnings, []);
    // A message of clang names a header by the directory that sources see, for any file in memory.
    let twice = refused("#include <twinprobe.h>\n#define TWINPROBE_H 1\n#error end\n").await;
    let log = twice.log.unwrap();
    assert!(
        log.contains("\n/twinprobe/include/twinprobe.h:")
            && log.contains(": note: previous definition"),
        "{log}"
    );
    let around = refused("#include \"/twinprobe/include/../../etc/hostname\"\n").await;
    assert!(
        around.findings[0].message.contains("file not found"),
        "{around:?}"
    );
}

#[tokio::test]
async fn a_known_source_is_not_compiled_again() {
    let compiler = compiler();
    let source = format!("{PROBE}\nstatic int unused_number(void) {{ int a; return 0; }}");
    let compile = async |field, value| {
        compiler
            .compile(&unit(field, &source, &defines(value)))
            .await
            .unwrap()
    };
    let first = compile("ingress.source", "1").await;
    assert!(!first.reused);
    let again = compile("ingress.source", "1").await;
    assert!(again.reused);
    assert_eq!((&again.elf, &again.warnings), (&first.elf, &first.warnings));
    let [warning] = &again.warnings[..] else {
        panic!("{:?}", again.warnings)
    };
    assert!(
        warning.message.contains("unused variable 'a'"),
        "{warning:?}"
    );
    assert!(!compile("ingress.source", "2").await.reused);
    assert!(
        !compile("egress.source", "1").await.reused,
        "its warnings are about another field"
    );
}

/// The lines of the source for the verifier's log are in BTF.
#[tokio::test]
async fn objects_have_no_debug_information() {
    use object::{Object as _, ObjectSection as _};
    let built = compiler()
        .compile(&unit("ingress.source", PROBE, &defines("1")))
        .await
        .unwrap();
    let file = object::File::parse(&built.elf[..]).unwrap();
    let names: Vec<&str> = file
        .sections()
        .map(|section| section.name().unwrap())
        .collect();
    for needed in ["xdp", ".maps", ".BTF", ".BTF.ext", "license"] {
        assert!(names.contains(&needed), "{needed} in {names:?}");
    }
    assert!(
        !names.iter().any(|name| name.contains("debug")),
        "{names:?}"
    );
    let btf = file.section_by_name(".BTF").unwrap().data().unwrap();
    let line = b"__u64 *n = bpf_map_lookup_elem(&packets, &zero);";
    assert!(btf.windows(line.len()).any(|part| part == line));
    assert!(built.elf.len() < 16 << 10, "{} bytes", built.elf.len());
}

#[tokio::test]
async fn messages_do_not_list_headers() {
    let rejection =
        refused("#include <linux/bpf.h>\n#warning this\nint f(void) { return x; }").await;
    let log = rejection.log.unwrap();
    assert!(
        log.contains("this") && !log.contains("linux/types.h"),
        "{log}"
    );
}
