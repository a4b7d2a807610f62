//! Runs as root.

use std::process::Stdio;

use super::*;

fn allowed() -> Allowed {
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
    Allowed {
        read: paths(&["/etc/ld.so.cache", "/etc/hostname"]),
        run: paths(&["/lib", "/lib64", "/usr/lib", "/bin", "/usr/bin"]),
        libraries: OsString::new(),
        memory: 1 << 30,
        data: 1 << 29,
        cpu_time: Duration::from_secs(1),
        open_files: 16,
    }
}

/// The output of a shell, and its success.
fn shell(confinement: &Confinement, script: &str) -> (bool, String) {
    let mut command = Command::new("/bin/bash");
    command
        .args(["--norc", "-c", script])
        .current_dir("/")
        .stdin(Stdio::null());
    confinement.apply(&mut command);
    let output = command.output().expect("a shell starts");
    (
        output.status.success(),
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    )
}

#[test]
fn a_child_has_what_it_is_allowed_to_have_and_no_more() {
    let confinement = Confinement::new(&allowed(), Arc::default());
    // `make test-kernels` says that another kernel has no Landlock.
    let expected = std::env::var("TWINPROBE_EXPECT").unwrap_or_default();
    let lacks = expected
        .split(',')
        .any(|feature| feature == "confined=false");
    assert_eq!(
        confinement.is_tight(),
        !lacks,
        "whether this kernel has Landlock and seccomp"
    );
    if lacks {
        assert_eq!(confinement.lacking(), [Lack::Landlock]);
        return;
    }
    let (works, text) = shell(
        &confinement,
        "read -r name < /etc/hostname; echo $UID $name; ulimit -n",
    );
    assert!(
        works && text.starts_with("65533 ") && text.ends_with("\n16\n"),
        "{text}"
    );
    for (script, word) in [
        ("read -r x < /etc/passwd", "Permission denied"),
        ("read -r x < /proc/self/environ", "Permission denied"),
        ("echo x > /tmp/confined", "Permission denied"),
        ("echo x > /dev/null", "Permission denied"),
        ("exec 3<>/dev/tcp/127.0.0.1/9", "Operation not permitted"),
        // Signals, even to itself.
        ("kill -0 $$", "Operation not permitted"),
        // A second process.
        ("(exit 0)", "Operation not permitted"),
        ("ulimit -c 1", "ulimit"),
    ] {
        let (works, text) = shell(&confinement, script);
        assert!(!works && text.contains(word), "{script}: {text}");
    }
}

#[test]
fn a_child_that_needs_more_than_it_may_have_ends() {
    let confinement = Confinement::limits_only(&allowed(), Arc::default());
    assert!(!confinement.is_tight());
    assert!(!shell(&confinement, "while :; do :; done").0);
    assert!(!shell(&confinement, "x=y; while :; do x=$x$x; done").0);
    assert!(shell(&confinement, "(exit 0)").0);
}

/// The number belongs to the x32 ABI, which this kernel may lack: without a filter the kernel
/// answers with ENOSYS, or makes a socket.
#[cfg(target_arch = "x86_64")]
#[test]
fn calls_by_the_numbers_of_another_abi_are_refused() {
    const X32: libc::c_long = 0x4000_0000;
    let filters = filter::programs().unwrap();
    let socket = |number: libc::c_long| {
        // SAFETY: three numbers; a descriptor from the call ends with the test.
        let result = unsafe { libc::syscall(number, libc::AF_INET, libc::SOCK_DGRAM, 0) };
        (result >= 0)
            .then_some(())
            .ok_or_else(|| io::Error::last_os_error().raw_os_error())
    };
    let confined = std::thread::spawn(move || {
        filters
            .iter()
            .for_each(|filter| apply_filter(filter).unwrap());
        [
            socket(libc::SYS_socket),
            socket(X32 | libc::SYS_socket),
            socket(libc::SYS_clone3),
        ]
    });
    let refused = |code: i32| Err(Some(code));
    assert_eq!(
        confined.join().unwrap(),
        [
            refused(libc::EPERM),
            refused(libc::EPERM),
            refused(libc::ENOSYS)
        ]
    );
}
