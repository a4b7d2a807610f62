//! Renderings of tags that do not fit the types of the values: documents show the values without
//! them.

use twinprobe_ebpf_common::{Layout, MapFamily, Render, Shape, TableLayout};

use twinprobe_ebpf_common::field::plan::{fits, fits_bitfield};

/// Returns the path of each part of a map's keys and values whose tag does not fit (`key.saddr`),
/// with the tag's rendering.
pub fn misfits(table: &TableLayout) -> Vec<(String, Render)> {
    let mut found = Vec::new();
    walk(&table.key, "key", &mut found);
    walk(&table.value, "value", &mut found);
    let is_histogram = table.kind.family() == MapFamily::Array
        && matches!(table.value.shape, Shape::Int { signed: false });
    found.retain(|(path, render)| *render != Render::Histogram || path != "value" || !is_histogram);
    if let Some(inner) = &table.inner {
        found.extend(misfits(inner));
    }
    found
}

fn walk(layout: &Layout, path: &str, found: &mut Vec<(String, Render)>) {
    if let Some(render) = layout.render.filter(|render| !fits(layout, *render)) {
        found.push((path.to_owned(), render));
    }
    match &layout.shape {
        Shape::Array { element, .. } => walk(element, path, found),
        Shape::Struct(members) | Shape::Union(members) => {
            for member in members {
                let path = format!("{path}.{}", member.name);
                match (member.bitfield, member.layout.render) {
                    (None, _) => walk(&member.layout, &path, found),
                    (Some(width), Some(render))
                        if !fits_bitfield(&member.layout, usize::from(width)) =>
                    {
                        found.push((path, render));
                    }
                    (Some(_), _) => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{MapKind, Member};

    use super::*;

    fn tagged(size: usize, render: Render) -> Layout {
        Layout {
            render: Some(render),
            ..Layout::unsigned(size)
        }
    }

    fn member(name: &str, bitfield: Option<u8>, layout: Layout) -> Member {
        Member {
            name: name.into(),
            bit_offset: 0,
            bitfield,
            layout,
        }
    }

    fn array(element: Layout, len: usize, render: Option<Render>) -> Layout {
        Layout {
            size: element.size * len,
            shape: Shape::Array {
                element: Box::new(element),
                len,
            },
            render,
        }
    }

    #[test]
    fn tags_that_do_not_fit_are_found_at_any_depth() {
        let members = vec![
            member("good", None, tagged(4, Render::Ipv4)),
            member("bad", None, tagged(8, Render::Ipv4)),
            member(
                "many",
                None,
                array(Layout::unsigned(4), 3, Some(Render::Ipv4)),
            ),
            member(
                "wrong",
                None,
                array(Layout::unsigned(2), 3, Some(Render::Ipv4)),
            ),
            member("bits", Some(3), tagged(4, Render::Hex)),
            member("port", Some(16), tagged(4, Render::Be16)),
        ];
        let key = Layout {
            size: 64,
            shape: Shape::Struct(members),
            render: None,
        };
        let value = tagged(8, Render::Histogram);
        let mut table = TableLayout {
            kind: MapKind::Hash,
            key,
            value,
            slots: 1,
            inner: None,
        };
        let found = misfits(&table);
        let paths: Vec<(&str, Render)> = found
            .iter()
            .map(|(path, render)| (path.as_str(), *render))
            .collect();
        let expected = [
            ("key.bad", Render::Ipv4),
            ("key.wrong", Render::Ipv4),
            ("key.port", Render::Be16),
            ("value", Render::Histogram),
        ];
        assert_eq!(paths, expected);
        table.kind = MapKind::PercpuArray;
        assert_eq!(
            misfits(&table).len(),
            3,
            "an array of numbers may be a histogram"
        );
    }
}
