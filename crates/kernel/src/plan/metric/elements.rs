//! The elements of IPFIX that tags of fields name.

use twinprobe_ebpf_common::Btf;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::ipfix::element::{FieldElements, IpfixElement};
use twinprobe_ebpf_common::request::MetricRequest;

/// Returns the elements of the map of a metric. Refuses names that IANA's registry does not have.
pub fn plan(btf: &Btf, request: &MetricRequest, findings: &mut Vec<Finding>) -> FieldElements {
    let types = btf.map_definition(&request.map).unwrap_or_default();
    let [key, value] =
        [types.key, types.value].map(|id| id.map(|id| btf.elements(id)).unwrap_or_default());
    for (part, elements) in [("key", &key), ("value", &value)] {
        for (path, name) in elements
            .iter()
            .filter(|(_, name)| IpfixElement::named(name).is_none())
        {
            let field = if path.is_empty() {
                String::new()
            } else {
                format!("field {path} of ")
            };
            let nearest = IpfixElement::nearest(name);
            let message = format!(
                "{field}the {part} of map {} has ie(\"{name}\"), which is not an element of IPFIX for probes; the nearest are {nearest}",
                request.map
            );
            findings.push(request.finding("map", message));
        }
    }
    FieldElements { key, value }
}
