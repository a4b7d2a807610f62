use super::*;

#[test]
fn owners_are_told_apart() {
    let foreign = |name: &str, owner| Foreign {
        name: name.to_owned(),
        id: 7,
        mode: "native",
        owner,
        pin: None,
    };
    let libxdp = |programs: &[&str], count| {
        let programs = programs.iter().map(ToString::to_string).collect();
        let pins = libxdp::pins_of(2, 7).display().to_string();
        foreign(
            LIBXDP_DISPATCHER,
            ForeignOwner::Libxdp {
                programs,
                count,
                pins,
            },
        )
    };
    for (programs, on, joining, expected) in [
        (
            vec![foreign("filter", ForeignOwner::Unknown)],
            "eth0",
            Joining::Asked,
            "the XDP program filter (id 7, native) is attached to eth0; detach it first (ip link set dev eth0 \
                 xdp off, or end what holds its link), or use hook tc",
        ),
        (
            vec![foreign("filter", ForeignOwner::Unknown)],
            "eth0",
            Joining::Refused,
            "the XDP program filter (id 7, native) is attached to eth0; detach it first (ip link set dev eth0 \
                 xdp off, or end what holds its link), or use hook tc; this kernel refuses extensions (EPERM), so \
                 xdp-loader shares no hook here",
        ),
        (
            vec![foreign(OWN_DISPATCHER, ForeignOwner::Twinprobe)],
            "eth0",
            Joining::NotAsked,
            "the dispatcher of another twinprobe, tp_dispatcher (id 7, native), is attached to eth0; deploy \
                 the probe there, or use hook tc",
        ),
        (
            vec![libxdp(&["a", "b"], Some(2))],
            "bond0",
            Joining::NotAsked,
            "a dispatcher of libxdp, xdp_dispatcher (id 7, native), with a, b (pinned in /sys/fs/bpf/xdp/dispatch-2-7), \
                 is attached to bond0, which is on top of eth0; serve --xdp-loader /usr/sbin/xdp-loader joins it; or use \
                 hook tc, or unload it (xdp-loader unload bond0 --all)",
        ),
        (
            vec![libxdp(&[], Some(2))],
            "eth0",
            Joining::Refused,
            "a dispatcher of libxdp, xdp_dispatcher (id 7, native), with 2 programs, is attached to eth0; \
                 this kernel refuses the extensions by which libxdp calls others (EPERM): use hook tc, or unload it \
                 (xdp-loader unload eth0 --all)",
        ),
        (
            vec![],
            "eth0",
            Joining::NotAsked,
            "another XDP program is attached to eth0; detach it first (ip link set dev eth0 xdp off, or end \
                 what holds its link), or use hook tc",
        ),
    ] {
        assert_eq!(explain("eth0", on, &programs, joining), expected);
    }
}

#[test]
fn managers_are_told_by_the_pins_of_their_programs() {
    let pinned = |name: &str, path: &str| {
        let pin = PathBuf::from(path);
        let owner =
            ProgramManager::of(&pin, "eth0").map_or(ForeignOwner::Unknown, ForeignOwner::Managed);
        Foreign {
            name: name.to_owned(),
            id: 7,
            mode: "native",
            owner,
            pin: Some(pin),
        }
    };
    for (program, expected) in [
        (
            pinned(
                "xdp_dispatcher",
                "/run/bpfman/fs/xdp/dispatcher_1_2_1/dispatcher",
            ),
            "the dispatcher of bpfman, xdp_dispatcher (id 7, native; pinned as /run/bpfman/fs/xdp/dispatcher_1_2_1/dispatcher), \
                 is attached to eth0; use hook tc, or detach the programs of eth0 there (bpfman list links, bpfman detach ID); \
                 bpfman pins them where libxdp does not look, so twinprobe can't join",
        ),
        (
            pinned(
                "xdp_root",
                "/sys/fs/bpf/progs/eth0/xdp-root/2_0_0/xdp_root_xdp",
            ),
            "the XDP program of l3afd, xdp_root (id 7, native; pinned as /sys/fs/bpf/progs/eth0/xdp-root/2_0_0/xdp_root_xdp), \
                 is attached to eth0; use hook tc, or remove the programs of eth0 there (POST /l3af/configs/v1/delete)",
        ),
        (
            pinned("filter", "/sys/fs/bpf/filter"),
            "the XDP program filter (id 7, native; pinned as /sys/fs/bpf/filter) is attached to eth0; detach it first (ip \
                 link set dev eth0 xdp off, or remove its pin if it is a link), or use hook tc",
        ),
    ] {
        assert_eq!(
            explain("eth0", "eth0", &[program], Joining::Asked),
            expected
        );
    }
}

#[test]
fn each_owner_is_described_at_the_end_of_a_sentence() {
    let foreign = |name: &str, owner| Foreign {
        name: name.to_owned(),
        id: 7,
        mode: "native",
        owner,
        pin: None,
    };
    let own = foreign(OWN_DISPATCHER, ForeignOwner::Twinprobe).describe(true);
    assert_eq!(
        own,
        "a dispatcher of twinprobe, tp_dispatcher (id 7, native; xdp-loader gets EBUSY)"
    );
    let bare = foreign("filter", ForeignOwner::Unknown).describe(false);
    assert_eq!(bare, "the XDP program filter (id 7, native)");
    let owner = ForeignOwner::Libxdp {
        programs: Vec::new(),
        count: Some(1),
        pins: String::new(),
    };
    let libxdp = foreign(LIBXDP_DISPATCHER, owner).describe(false);
    assert_eq!(
        libxdp,
        "a dispatcher of libxdp, xdp_dispatcher (id 7, native), with 1 program"
    );
}
