//! Tests of the parser. The texts are those of clang 14, word for word.

use std::time::Duration;

use super::*;

fn errors(log: &str) -> Vec<(Option<u32>, Option<u32>, String)> {
    let list = parse("ingress.source", log).errors;
    list.into_iter()
        .map(|error| (error.line, error.column, error.message))
        .collect()
}

fn error(
    line: impl Into<Option<u32>>,
    column: impl Into<Option<u32>>,
    message: &str,
) -> (Option<u32>, Option<u32>, String) {
    (line.into(), column.into(), message.to_owned())
}

#[test]
fn each_error_has_its_line_and_column() {
    let log = "\
probe.c:1:9: error: expected expression
int x = ;
        ^
probe.c:2:23: error: expected ';' after return statement
int f(void) { return y }
                      ^
                      ;
2 errors generated.
";
    assert_eq!(
        errors(log),
        [
            error(1, 9, "expected expression"),
            error(2, 23, "expected ';' after return statement")
        ]
    );
    let first = &parse("egress.source", log).errors[0];
    assert_eq!(
        (first.stage, first.field.as_deref()),
        (Stage::Compile, Some("egress.source"))
    );
}

#[test]
fn a_missing_header_is_an_error() {
    let log = "\
probe.c:2:10: fatal error: 'nope/missing.h' file not found
#include <nope/missing.h>
         ^~~~~~~~~~~~~~~~
1 error generated.
";
    assert_eq!(
        errors(log),
        [error(2, 10, "'nope/missing.h' file not found")]
    );
}

#[test]
fn a_section_with_the_name_of_its_function_is_explained() {
    let log = "error: see changed binding to STB_GLOBAL\n<unknown>:0: error: symbol 'see' is already defined\n2 errors generated.\n";
    let errors = errors(log);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].2.contains("name the section otherwise"),
        "{errors:?}"
    );
}

#[test]
fn errors_in_headers_point_to_the_include() {
    let log = "\
In file included from probe.c:3:
In file included from /usr/include/a.h:2:
/usr/include/b.h:1:14: error: expected expression
int broken = ;
             ^
/usr/include/b.h:7:2: warning: hmm [-W#warnings]
#warning hmm
 ^
/usr/include/b.h:9:2: error: again
1 warning and 2 errors generated.
";
    // Other mistakes in a header of the host follow from the first one.
    assert_eq!(
        errors(log),
        [error(3, None, "in /usr/include/b.h:1: expected expression")]
    );
    let warnings = parse("ingress.source", log).warnings;
    assert_eq!(warnings[0].line, Some(3));
    assert_eq!(
        warnings[0].message,
        "in /usr/include/b.h:7: hmm [-W#warnings]"
    );
}

#[test]
fn notes_are_left_to_the_log() {
    let log = "\
probe.c:3:35: error: use of undeclared identifier 'undeclared'
int f(int z) { return B2(z); }
                      ^
probe.c:2:15: note: expanded from macro 'B2'
#define B2(x) BAD(x)
              ^
1 error generated.
";
    assert_eq!(
        errors(log),
        [error(3, 35, "use of undeclared identifier 'undeclared'")]
    );
}

#[test]
fn the_backend_keeps_its_lines() {
    let log = "\
probe.c:3:16: error: Looks like the BPF stack limit of 512 bytes is exceeded. Please move large on stack variables into BPF per-cpu array map.
SEC(\"xdp\") int f(struct xdp_md *c) {
               ^
probe.c:3:16: note: could not determine the original source location for probe.c:0:0
1 error generated.
";
    let found = errors(log);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].0, found[0].1), (Some(3), Some(16)));
    assert!(found[0].2.contains("512 bytes"));
}

#[test]
fn an_internal_error_is_said_in_plain_words() {
    let log = "\
Error at line 5: Unsupport signed division for DAG: 0x1ea6adb0: i64 = sdiv 0x1ea6a9a0, 0x1ea6aad8, probe.c:5:36Please convert to unsigned div/mod.
fatal error: error in backend: Cannot select: 0x1ea6adb0: i64 = sdiv 0x1ea6a9a0, 0x1ea6aad8, probe.c:5:36
  0x1ea6a9a0: i64,ch = CopyFromReg 0x1ea034f8, Register:i64 %0
In function: dd
PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/ and include the crash backtrace.
Stack dump:
0.	Program arguments: clang -target bpf
clang: error: clang frontend command failed with exit code 70 (use -v to see invocation)
";
    let words = "signed division is not supported; make the operands unsigned";
    assert_eq!(errors(log), [error(5, None, words), error(5, 36, words)]);
    assert!(without_crash_report(log).ends_with("In function: dd\n"));
}

#[test]
fn errors_without_a_place_are_kept() {
    assert_eq!(
        errors("error: unknown target triple 'foo', please use -triple or -arch\n"),
        [error(
            None,
            None,
            "unknown target triple 'foo', please use -triple or -arch"
        )]
    );
    assert_eq!(
        errors("clang-14: error: no such file or directory: 'x'\n"),
        [error(None, None, "no such file or directory: 'x'")]
    );
    assert_eq!(
        errors("error: <unknown>:0:0: in function g i32 (i32): call to memcpy\n"),
        [error(
            None,
            None,
            "<unknown>:0:0: in function g i32 (i32): call to memcpy"
        )]
    );
    assert_eq!(
        errors("<inline asm>:1:9: error: Could not find incbin file '/nonexistent'\n"),
        [error(
            None,
            None,
            "in <inline asm>:1: Could not find incbin file '/nonexistent'"
        )]
    );
    assert_eq!(
        errors("probe.c:0:0: error: nowhere\n"),
        [error(None, None, "nowhere")]
    );
}

#[test]
fn errors_in_defines_point_to_defines() {
    let log = "\
In file included from <built-in>:323:
<command line>:1:9: error: 'defined' cannot be used as a macro name
#define defined 3
        ^
1 error generated.
";
    let found = parse("ingress.source", log).errors;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].field.as_deref(), found[0].line),
        (Some("ingress.defines"), None)
    );
}

#[test]
fn source_excerpts_are_no_diagnostics() {
    let log = "
   12 | probe.c:1:1: error: quoted
  probe.c:1:1: error: indented
x = a ? b : error: c
1 warning generated.
";
    assert_eq!(parse("ingress.source", log), Diagnostics::default());
}

#[test]
fn any_text_is_read_without_panic() {
    let log = "In file included from probe.c:3:\nIn file included from /usr/include/b.h:4294967296:\nprobe.c:1:2: error: x\n\
        probe.c:7: warning: ü [-W#warnings]\nError at line 3: y\nfatal error: z\n1 error generated.\n";
    let seeds =
        [log, "probe.c:0:0: note: \n", ": error: : error: "].map(|text| text.as_bytes().to_vec());
    twinprobe_fuzz::runner::run("diagnostics", Duration::from_secs(1), &seeds, |input| {
        let log = String::from_utf8_lossy(input);
        let found = parse("ingress.source", without_crash_report(&log));
        let places = found.errors.iter().chain(&found.warnings);
        assert!(places.clone().count() <= log.lines().count());
        for finding in places {
            assert!(
                finding.line != Some(0) && finding.column != Some(0),
                "{finding:?} in {log:?}"
            );
        }
    });
}

#[test]
fn of_a_failed_assertion_the_text_is_kept() {
    for text in [
        "static_assert failed \"too \\\"big\\\"\"",
        "static_assert failed due to requirement 'sizeof (\"a\") == 3' \"too \\\"big\\\"\"",
        "static assertion failed: too \"big\"",
        "static assertion failed due to requirement 'sizeof (int) == 3': too \"big\"",
    ] {
        assert_eq!(
            errors(&format!("probe.c:1:2: error: {text}\n")),
            [error(1, 2, "too \"big\"")]
        );
    }
    let without = "static_assert failed due to requirement '0 == 1'";
    assert_eq!(
        errors(&format!("probe.c:1:2: error: {without}\n")),
        [error(1, 2, without)]
    );
}
