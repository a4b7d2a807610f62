use super::*;

/// Makes programs of sections and names.
fn of(list: &[(&str, &str)]) -> Vec<ElfProgram> {
    let mut builder = Builder::new(object::Endianness::Little, true);
    let section = builder.sections.add().id();
    let program = |(section_name, name): &(&str, &str)| ElfProgram {
        name: (*name).to_owned(),
        section,
        section_name: (*section_name).to_owned(),
        meaning: meaning(section_name),
        is_called: name.starts_with("called"),
    };
    list.iter().map(program).collect()
}

fn entry(list: &[(&str, &str)], hook: Hook) -> Result<String, String> {
    match choose(&of(list), hook, None) {
        Ok(ProgramChoice {
            entry, unfit: None, ..
        }) => Ok(entry),
        Ok(ProgramChoice {
            unfit: Some(unfit), ..
        })
        | Err(unfit) => Err(unfit.to_string()),
    }
}

#[test]
fn what_others_call_is_no_entry_point() {
    assert_eq!(
        entry(
            &[
                ("xdp", "called_first"),
                ("xdp", "see"),
                ("xdp", "called_last")
            ],
            Hook::Xdp
        )
        .unwrap(),
        "see"
    );
    assert!(
        entry(
            &[("xdp", "called_first"), ("xdp", "called_last")],
            Hook::Xdp
        )
        .is_err()
    );
    assert_eq!(
        entry(&[("xdp", "called_first"), ("tc", "called_last")], Hook::Xdp).unwrap(),
        "called_first"
    );
}

#[test]
fn sections_are_understood_by_their_first_part() {
    for name in ["xdp", "xdp/eth0", "?xdp", "xdp/ingress/x"] {
        assert_eq!(
            meaning(name),
            SectionMeaning::Xdp { frags: false },
            "{name}"
        );
    }
    for name in ["xdp.frags", "xdp.frags/x", "?xdp.frags"] {
        assert_eq!(meaning(name), SectionMeaning::Xdp { frags: true }, "{name}");
    }
    for name in [
        "xdp.frags_devmap",
        "xdp.frags_cpumap",
        "xdp/cpumap",
        "xdp_devmap",
        "xdp_cpumap/a",
        "xdp.frags/devmap",
    ] {
        assert_eq!(meaning(name), SectionMeaning::Redirected, "{name}");
    }
    for (name, direction) in [
        ("tc", None),
        ("tcx/egress", Some(Direction::Egress)),
        ("classifier/ingress", Some(Direction::Ingress)),
        ("tc/entry", None),
    ] {
        assert_eq!(meaning(name), SectionMeaning::Tc(direction), "{name}");
    }
    for name in [
        "kprobe/x",
        "tracepoint/net/x",
        "cgroup_skb/egress",
        "sk_skb/stream_parser",
    ] {
        assert_eq!(meaning(name), SectionMeaning::Elsewhere, "{name}");
    }
    for name in [
        "xdp_prog",
        "tc_ingress",
        "classifier_x",
        "prog",
        "from-netdev",
        "2/1",
        "tcp",
    ] {
        assert_eq!(meaning(name), SectionMeaning::Free, "{name}");
    }
}

#[test]
fn the_only_program_is_the_entry_point_unless_it_is_for_another_hook() {
    for section in [
        "xdp",
        "?xdp",
        "xdp_prog",
        "tc_ingress",
        "prog",
        "from-netdev",
        "2/1",
    ] {
        assert_eq!(
            entry(&[(section, "p")], Hook::Xdp),
            Ok("p".to_owned()),
            "{section}"
        );
    }
    for section in ["tc", "tc/ingress", "classifier_x", "xdp_prog", "action"] {
        assert_eq!(
            entry(&[(section, "p")], Hook::TcEgress),
            Ok("p".to_owned()),
            "{section}"
        );
    }
    let other = entry(&[("tc", "p")], Hook::Xdp).unwrap_err();
    assert!(
        other.contains("p is in SEC(\"tc\")") && other.contains("write SEC(\"xdp\")"),
        "{other}"
    );
    let device = entry(&[("xdp.frags_devmap", "p")], Hook::Xdp).unwrap_err();
    assert!(
        device.contains("redirects") && device.contains("write SEC(\"xdp\")"),
        "{device}"
    );
    assert!(entry(&[("kprobe/x", "p")], Hook::TcIngress).is_err());
    assert!(
        entry(&[], Hook::Xdp)
            .unwrap_err()
            .starts_with("no entry point")
    );
}

#[test]
fn sections_and_names_choose_among_several_programs() {
    let two = [("tc/ingress", "in"), ("tc/egress", "out")];
    assert_eq!(entry(&two, Hook::TcIngress), Ok("in".to_owned()));
    assert_eq!(entry(&two, Hook::TcEgress), Ok("out".to_owned()));
    assert!(
        entry(&two, Hook::Xdp)
            .unwrap_err()
            .contains("in, out belong to other hooks")
    );
    let both = [("xdp", "x"), ("tc", "t"), ("kprobe/f", "k")];
    assert_eq!(entry(&both, Hook::Xdp), Ok("x".to_owned()));
    assert_eq!(entry(&both, Hook::TcEgress), Ok("t".to_owned()));
    let named = [("tc", "handle_ingress"), ("tc", "handle_egress")];
    assert_eq!(
        entry(&named, Hook::TcEgress),
        Ok("handle_egress".to_owned())
    );
    let old = [("from-netdev", "a"), ("to-netdev", "b"), ("2/10", "c")];
    assert_eq!(entry(&old, Hook::TcIngress), Ok("a".to_owned()));
    assert_eq!(entry(&old, Hook::TcEgress), Ok("b".to_owned()));
    let loose = [
        ("xdp_prog_simple", "a"),
        ("tc_ingress", "b"),
        ("tc_egress", "c"),
    ];
    assert_eq!(entry(&loose, Hook::Xdp), Ok("a".to_owned()));
    assert_eq!(entry(&loose, Hook::TcIngress), Ok("b".to_owned()));
    assert_eq!(entry(&loose, Hook::TcEgress), Ok("c".to_owned()));
    let many = [("xdp_pass", "a"), ("xdp_drop", "b"), ("tc", "c")];
    assert_eq!(
        entry(&many, Hook::Xdp).unwrap_err(),
        "2 entry points: a, b; choose one by the field entry of the direction, or leave one program in SEC(\"xdp\")"
    );
}

#[test]
fn the_configuration_chooses_by_name() {
    let programs = of(&[("xdp", "a"), ("xdp.frags/x", "b"), ("tc", "c")]);
    let ProgramChoice {
        entry,
        frags,
        unfit,
        ..
    } = choose(&programs, Hook::Xdp, Some("b")).unwrap();
    assert_eq!((entry.as_str(), frags, unfit), ("b", true, None));
    assert!(
        choose(&programs, Hook::Xdp, Some("c"))
            .unwrap()
            .unfit
            .is_some()
    );
    let unknown = choose(&programs, Hook::Xdp, Some("d")).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "entry is d, and the programs are a, b, c"
    );
}
