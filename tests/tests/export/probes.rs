//! The ready-made probes: features that are switched off cost nothing.

use anyhow::{Context, Result};
use aya::programs::{SchedClassifier, Xdp};
use aya_obj::Object;
use twinprobe_tests::{bpf, probes};

/// The size of a compiled `flow-features`: instructions, bytes of a key and of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    instructions: usize,
    key: u32,
    value: u32,
}

fn flow_features(defines: &[String]) -> Result<Size> {
    let object = bpf::compile(&source("flow-features")?, defines)?;
    let object = Object::parse(&object)?;
    let map = &object.maps["flows"];
    Ok(Size {
        instructions: object
            .functions
            .values()
            .map(|function| function.instructions.len())
            .sum(),
        key: map.key_size(),
        value: map.value_size(),
    })
}

/// Returns the source with the only name for a TC section that is known to aya.
fn source(name: &str) -> Result<String> {
    Ok(probes::source(name)?.replace("SEC(\"tc\")", "SEC(\"classifier\")"))
}

fn first_features(n: u32, hook: Hook) -> Vec<String> {
    let mut defines = vec![format!("FEATURES={n}")];
    defines.extend(hook.define());
    defines
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Hook {
    Xdp,
    Tc,
}

impl Hook {
    fn define(self) -> Option<String> {
        (self == Self::Tc).then(|| "TC=1".to_owned())
    }
}

#[test]
fn fewer_features_are_fewer_instructions_and_smaller_entries() -> Result<()> {
    for hook in [Hook::Xdp, Hook::Tc] {
        let sizes: Vec<Size> = (1..=15)
            .map(|n| flow_features(&first_features(n, hook)))
            .collect::<Result<_>>()?;
        for (n, pair) in sizes.windows(2).enumerate() {
            let (less, more) = (pair[0], pair[1]);
            let what = format!(
                "{hook:?}, {} to {} features: {less:?} {more:?}",
                n + 1,
                n + 2
            );
            assert!(
                less.instructions <= more.instructions && less.value <= more.value,
                "{what}"
            );
            assert!(less.key <= more.key, "{what}");
            // The features from the fifth on add instructions for every packet each, except that
            // the source address (7) takes the place of the key that all packets share.
            assert!(
                n + 2 < 5 || hook == Hook::Tc || less.instructions < more.instructions,
                "{what}"
            );
        }
        // At TC the walk over the headers of a packet that is many frames may be compiled another
        // way, which hides one feature: two of them add instructions.
        for (n, three) in sizes.windows(3).enumerate().skip(2) {
            let (less, more) = (three[0], three[2]);
            assert!(
                less.instructions < more.instructions,
                "{hook:?}, {} to {}: {less:?} {more:?}",
                n + 1,
                n + 3
            );
        }
        let (one, six, all) = (sizes[0], sizes[5], sizes[14]);
        assert!(one.instructions * 4 < all.instructions, "{one:?} {all:?}");
        assert!(
            (one.key + one.value) * 8 < all.key + all.value,
            "{one:?} {all:?}"
        );
        // The first six features need no parsing, but TC has packets of many frames, whose headers
        // count.
        assert!(
            hook == Hook::Tc || six.instructions * 3 < all.instructions,
            "{six:?} {all:?}"
        );
        let all_by_default = flow_features(&hook.define().into_iter().collect::<Vec<_>>())?;
        assert_eq!(all_by_default, all);
    }
    Ok(())
}

/// The features in the order in which `FEATURES=n` takes the first of them.
const FEATURES: [&str; 15] = [
    "INPUT_SNMP",
    "OUTPUT_SNMP",
    "SRC_AS",
    "DST_AS",
    "IN_PKTS",
    "IN_BYTES",
    "IPV4_SRC_ADDR",
    "IPV4_DST_ADDR",
    "PROTOCOL",
    "SRC_TOS",
    "L4_SRC_PORT",
    "L4_DST_PORT",
    "TCP_FLAGS",
    "FIRST_SWITCHED",
    "LAST_SWITCHED",
];

#[test]
fn features_can_be_chosen_one_by_one() -> Result<()> {
    let defines = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("F_{name}=1"))
            .collect::<Vec<_>>()
    };
    let packets_per_source = flow_features(&defines(&["IPV4_SRC_ADDR", "IN_PKTS"]))?;
    assert_eq!((packets_per_source.key, packets_per_source.value), (4, 8));
    let first_twelve = flow_features(&first_features(12, Hook::Xdp))?;
    assert_eq!(flow_features(&defines(&FEATURES[..12]))?, first_twelve);
    let mut on_top = first_features(6, Hook::Xdp);
    on_top.push("F_TCP_FLAGS=1".to_owned());
    assert_eq!(flow_features(&on_top)?.value, 40);
    Ok(())
}

#[test]
fn the_verifier_accepts_every_variant() -> Result<()> {
    for hook in [Hook::Xdp, Hook::Tc] {
        let variants = (1..=15).map(|n| vec![format!("FEATURES={n}")]);
        let single = FEATURES.iter().map(|name| vec![format!("F_{name}=1")]);
        for mut defines in variants.chain(single) {
            defines.extend(hook.define());
            verify("flow-features", "flow_features", hook, &defines)?;
        }
        verify(
            "packet-counter",
            "packet_counter",
            hook,
            &hook.define().into_iter().collect::<Vec<_>>(),
        )?;
    }
    verify(
        "packet-counter",
        "packet_counter",
        Hook::Xdp,
        &["NO_FRAGS=1".to_owned()],
    )?;
    verify(
        "flow-features",
        "flow_features",
        Hook::Xdp,
        &["NO_FRAGS=1".to_owned()],
    )
}

fn verify(probe: &str, program: &str, hook: Hook, defines: &[String]) -> Result<()> {
    let mut ebpf = bpf::load(&source(probe)?, defines)?;
    let program = ebpf.program_mut(program).context("no program")?;
    let loaded = match hook {
        Hook::Xdp => <&mut Xdp>::try_from(program)?.load(),
        Hook::Tc => <&mut SchedClassifier>::try_from(program)?.load(),
    };
    loaded.with_context(|| format!("{probe} {defines:?}"))
}
