//! The families about the origin of a probe's numbers, and about the reasons why they differ from
//! the numbers on the wire.

use std::collections::BTreeMap;

use twinprobe_ebpf_common::{DocumentOrigin, PodNames};

use super::text::escaped;

/// Writes a family of type `info` with a sample for each probe: the labels of the sample are the
/// node, the instance and the labels of the probe. Writes nothing if there are no probes.
pub fn origins<'a>(probes: impl IntoIterator<Item = (&'a str, &'a DocumentOrigin)>) -> String {
    let mut out = Vec::new();
    for (
        probe,
        DocumentOrigin {
            node,
            instance,
            labels,
        },
    ) in probes
    {
        if out.is_empty() {
            out.extend_from_slice(
                b"# TYPE twinprobe_probe info\n# HELP twinprobe_probe Where a probe runs.\n",
            );
        }
        out.extend_from_slice(b"twinprobe_probe_info{probe=\"");
        escaped(&mut out, probe);
        let own = [("node", node), ("instance", instance)];
        for (name, value) in own
            .into_iter()
            .chain(labels.iter().map(|(name, value)| (&**name, value)))
        {
            label(&mut out, name, value);
        }
        out.extend_from_slice(b"\"} 1\n");
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes a family of type `info` with a sample for each probe whose numbers are approximate, and
/// the reason. Writes nothing if no probe has approximate numbers.
pub fn approximations<'a>(probes: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = Vec::new();
    for (probe, reason) in probes {
        if out.is_empty() {
            out.extend_from_slice(
                b"# TYPE twinprobe_approximate info\n\
                  # HELP twinprobe_approximate Why the numbers of a probe differ from those on the wire.\n",
            );
        }
        out.extend_from_slice(b"twinprobe_approximate_info{probe=\"");
        escaped(&mut out, probe);
        label(&mut out, "reason", reason);
        out.extend_from_slice(b"\"} 1\n");
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes a family of type `info` with a sample for each interface of a probe that is a pod's.
/// Writes nothing if there are none.
pub fn pods<'a>(
    probes: impl IntoIterator<Item = (&'a str, &'a BTreeMap<String, PodNames>)>,
) -> String {
    let mut out = Vec::new();
    for (probe, pods) in probes {
        for (interface, pod) in pods {
            if out.is_empty() {
                out.extend_from_slice(
                    b"# TYPE twinprobe_interface_pod info\n\
                      # HELP twinprobe_interface_pod The pod to which an interface of a probe leads.\n",
                );
            }
            out.extend_from_slice(b"twinprobe_interface_pod_info{probe=\"");
            escaped(&mut out, probe);
            label(&mut out, "interface", interface);
            pod.fields()
                .for_each(|(name, value)| label(&mut out, name, value));
            out.extend_from_slice(b"\"} 1\n");
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Ends the previous label, and appends a label without its last quote.
pub fn label(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in ["\",", name, "=\""] {
        out.extend_from_slice(part.as_bytes());
    }
    escaped(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_probe_has_a_sample() {
        let labels = [("rack".to_owned(), "\"7\"\n".to_owned())].into();
        let origin = DocumentOrigin {
            node: "gw-1".into(),
            instance: "0a".into(),
            labels,
        };
        let plain = DocumentOrigin {
            labels: Default::default(),
            ..origin.clone()
        };
        assert_eq!(
            origins([("a", &origin), ("b", &plain)]),
            "# TYPE twinprobe_probe info\n# HELP twinprobe_probe Where a probe runs.\n\
             twinprobe_probe_info{probe=\"a\",node=\"gw-1\",instance=\"0a\",rack=\"\\\"7\\\"\\n\"} 1\n\
             twinprobe_probe_info{probe=\"b\",node=\"gw-1\",instance=\"0a\"} 1\n"
        );
        assert_eq!(origins([]), "");
    }

    #[test]
    fn each_interface_of_a_pod_has_a_sample() {
        let names = |workload: Option<&str>| PodNames {
            namespace: "shop".into(),
            pod: "web-1".into(),
            workload: workload.map(str::to_owned),
        };
        let of = |names: PodNames| BTreeMap::from([("veth1".to_owned(), names)]);
        let (all, some) = (of(names(Some("Deployment/web"))), of(names(None)));
        assert_eq!(
            pods([("a", &all), ("b", &some), ("c", &BTreeMap::new())]),
            "# TYPE twinprobe_interface_pod info\n\
             # HELP twinprobe_interface_pod The pod to which an interface of a probe leads.\n\
             twinprobe_interface_pod_info{probe=\"a\",interface=\"veth1\",namespace=\"shop\",pod=\"web-1\",workload=\"Deployment/web\"} 1\n\
             twinprobe_interface_pod_info{probe=\"b\",interface=\"veth1\",namespace=\"shop\",pod=\"web-1\"} 1\n"
        );
        assert_eq!(pods([]), "");
    }

    #[test]
    fn each_reason_is_a_label() {
        assert_eq!(
            approximations([("a", "\"why\"")]),
            "# TYPE twinprobe_approximate info\n\
             # HELP twinprobe_approximate Why the numbers of a probe differ from those on the wire.\n\
             twinprobe_approximate_info{probe=\"a\",reason=\"\\\"why\\\"\"} 1\n"
        );
        assert_eq!(approximations([]), "");
    }
}
