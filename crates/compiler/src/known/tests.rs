//! Objects that are known, and headers that change.

use std::collections::BTreeMap;
use std::fs;

use twinprobe_ebpf_common::hook::{Hook, Verdict};

use super::*;
use twinprobe_ebpf_common::unit::{Calls, Dialect};

static NO_FILES: BTreeMap<String, String> = BTreeMap::new();

fn key(source: &str, arguments: &[&str]) -> ObjectKey {
    let (defines, calls) = (BTreeMap::new(), Calls::new());
    let unit = Unit {
        field: "ingress.source",
        source,
        files: &NO_FILES,
        defines: &defines,
        dialect: Dialect::Libbpf,
        entry: None,
        calls: &calls,
        other: None,
        hook: Hook::Xdp,
        verdict: Verdict::Observe,
        frags: true,
    };
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    ObjectKey::new(Path::new("/bin/true"), &arguments, &unit)
}

fn object(length: usize) -> CompiledObject {
    CompiledObject {
        elf: vec![7; length],
        warnings: Vec::new(),
        shared: Vec::new(),
        reused: false,
    }
}

#[test]
fn an_object_is_known_until_something_changes_that_it_was_made_of() {
    let directory = tempfile::tempdir().unwrap();
    let headers = ["a.h", "b.h"].map(|name| directory.path().join(name));
    let clang = directory.path().join("clang");
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("a header is longer", |at| {
            fs::write(at.join("b.h"), "longer").unwrap();
        }),
        ("a header is gone", |at| {
            fs::remove_file(at.join("a.h")).unwrap();
        }),
        ("a header is new", |at| {
            fs::write(at.join("0.h"), "").unwrap();
        }),
        ("clang is another one", |at| {
            fs::write(at.join("clang"), "newer").unwrap();
        }),
    ];
    for (what, change) in changes {
        for path in headers.iter().chain([&clang]) {
            fs::write(path, "old").unwrap();
        }
        let known = ObjectCache::default();
        known.keep(
            key("a", &["-O2"]),
            &object(5),
            &clang,
            headers.clone().into(),
        );
        assert!(
            known
                .get(&key("a", &["-O2"]))
                .is_some_and(|found| found.reused && found.elf == [7; 5])
        );
        assert!(
            known.get(&key("b", &["-O2"])).is_none() && known.get(&key("a", &["-O3"])).is_none()
        );
        assert!(known.get(&key("a-O2", &[])).is_none());
        change(directory.path());
        assert!(known.get(&key("a", &["-O2"])).is_none(), "{what}");
    }
}

#[test]
fn few_objects_are_kept_and_no_long_ones() {
    let known = ObjectCache::default();
    let numbered = |number: usize| key(&number.to_string(), &[]);
    known.keep(
        numbered(1000),
        &object(LONGEST + 1),
        Path::new("/bin/true"),
        BTreeSet::new(),
    );
    assert!(known.get(&numbered(1000)).is_none());
    for number in 0..=OBJECTS.get() {
        known.keep(
            numbered(number),
            &object(LONGEST),
            Path::new("/bin/true"),
            BTreeSet::new(),
        );
        assert!(known.get(&numbered(0)).is_some(), "it is used each time");
    }
    assert!(
        known.get(&numbered(1)).is_none(),
        "it was used the longest ago"
    );
    assert_eq!(
        (2..=OBJECTS.get())
            .filter(|number| known.get(&numbered(*number)).is_some())
            .count(),
        OBJECTS.get() - 1
    );
}

#[test]
fn the_list_of_headers_is_taken_out_of_the_messages() {
    let log = ". /usr/include/a.h\nprobe.c:1:2: warning: this [-W]\n#warning . /no\n.. /usr/include/b c.h\n. /twinprobe/include/twinprobe.h\n\
        . /twinprobe/includes/x.h\n.no header\n /nor this\n... nor/this";
    let (messages, headers) = take_headers(log);
    assert_eq!(
        messages,
        "probe.c:1:2: warning: this [-W]\n#warning . /no\n.no header\n /nor this\n... nor/this"
    );
    let expected = [
        "/twinprobe/includes/x.h",
        "/usr/include/a.h",
        "/usr/include/b c.h",
    ];
    assert_eq!(headers, expected.map(PathBuf::from).into());
}
