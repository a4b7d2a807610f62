use super::*;
use crate::local::check::CheckVerdict;

fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, MachineFiles) {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let host = MachineFiles {
        proc: directory.path().join("proc"),
        sys: directory.path().join("sys"),
    };
    (directory, host)
}

#[test]
fn what_a_bare_machine_lacks_is_named_with_what_to_change() {
    let (_directory, host) = host(&[
        ("proc/self/status", "Name: x\nCapEff:\t0000000000001000\n"),
        (
            "sys/kernel/security/lockdown",
            "none integrity [confidentiality]\n",
        ),
        ("proc/sys/net/core/bpf_jit_enable", "0\n"),
        ("proc/filesystems", "nodev bpf\n"),
        (
            "proc/self/limits",
            "Max open files            256      4096     files\n",
        ),
    ]);
    let verdicts: Vec<(&str, CheckVerdict)> = [
        privileges(&host).remove(0),
        lockdown(&host),
        jit(&host),
        btf(&host),
        bpffs(&host),
        limits(&host),
        interfaces(&host),
    ]
    .into_iter()
    .inspect(|check| assert!(check.change.is_some(), "{check:?}"))
    .map(|check| (check.name, check.verdict))
    .collect();
    use CheckVerdict::{Failed, Warning};
    assert_eq!(
        verdicts,
        [
            ("privileges", Failed),
            ("lockdown", Failed),
            ("jit", Warning),
            ("btf", Warning),
            ("bpf file system", Warning),
            ("limits", Warning),
            ("interfaces", Warning)
        ]
    );
    assert!(
        privileges(&host)[0].found.contains("lacks CAP_BPF"),
        "{:?}",
        privileges(&host)
    );
}

#[test]
fn a_fit_machine_has_nothing_to_change() {
    let (_directory, host) = host(&[
        ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
        ("proc/sys/net/core/bpf_jit_enable", "1\n"),
        ("proc/self/mounts", "bpf /sys/fs/bpf bpf rw 0 0\n"),
        (
            "proc/self/limits",
            "Max open files            1048576      1048576     files\nMax locked memory unlimited unlimited bytes\n",
        ),
        ("sys/kernel/btf/vmlinux", ""),
        ("sys/class/net/ux0/mtu", "1500"),
    ]);
    let checks = [
        privileges(&host),
        vec![
            lockdown(&host),
            jit(&host),
            btf(&host),
            bpffs(&host),
            limits(&host),
            interfaces(&host),
        ],
    ];
    assert!(
        checks
            .concat()
            .iter()
            .all(|check| check.verdict == CheckVerdict::Ok),
        "{checks:?}"
    );
}
