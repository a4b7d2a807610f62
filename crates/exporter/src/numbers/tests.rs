use twinprobe_ebpf_common::{Aggregation, Layout, MapKind, Member, Render, Shape};

use super::*;

fn member(name: &str, offset: usize, layout: Layout) -> Member {
    Member {
        name: name.into(),
        bit_offset: 8 * offset,
        bitfield: None,
        layout,
    }
}

fn metric(kind: MapKind, slots: usize) -> Metric {
    let list = Shape::Array {
        element: Box::new(Layout::unsigned(2)),
        len: 2,
    };
    let list = Layout {
        size: 4,
        shape: list,
        render: None,
    };
    let members = vec![
        member("port", 0, Layout::unsigned(2)),
        member("packets", 2, Layout::unsigned(2)),
        member("sizes", 4, list),
    ];
    let value = Layout {
        size: 8,
        shape: Shape::Struct(members),
        render: None,
    };
    Metric::example(
        "m",
        TableLayout {
            kind,
            key: Layout::unsigned(1),
            value,
            slots,
            inner: None,
        },
    )
}

fn numbers(metric: Metric, path: Option<&str>, values: &[u16]) -> Vec<(u8, Number)> {
    let mut numbers = Numbers::new(&Arc::new(metric), path).unwrap();
    let values = values
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let table = RawTable {
        keys: vec![7, 8],
        values,
        ..RawTable::default()
    };
    let column = numbers.column(&numbers.rows(&table).into_owned().values);
    let keys = table.keys.iter().copied();
    keys.enumerate()
        .filter_map(|(row, key)| Some((key, column.get(row)?)))
        .collect()
}

#[test]
fn a_number_is_found_by_its_path() {
    let values = [53, 10, 1, 2, 80, 20, 3, 4];
    let of = |path| numbers(metric(MapKind::Hash, 1), path, &values);
    let integers = |a, b| vec![(7, Number::Integer(a)), (8, Number::Integer(b))];
    assert_eq!(of(Some("port")), integers(53, 80));
    assert_eq!(of(None), integers(10, 20), "the first counter");
    assert_eq!(of(Some("sizes")), integers(3, 7), "items add up");
}

#[test]
fn a_column_has_the_numbers_of_its_values() {
    let sizes = [1, 2, 4, 8].map(|size| (size, None));
    let others = [
        (2, Render::Be16),
        (4, Render::Be32),
        (8, Render::Be64),
        (16, Render::Decimal),
        (4, Render::Hex),
    ];
    for (size, render) in sizes
        .into_iter()
        .chain(others.map(|(size, render)| (size, Some(render))))
    {
        let number = Layout {
            render,
            ..Layout::unsigned(size)
        };
        let shape = Shape::Struct(vec![
            member("skipped", 0, Layout::unsigned(3)),
            member("n", 3, number),
        ]);
        let value = Layout {
            size: 3 + size,
            shape,
            render: None,
        };
        let layout = TableLayout {
            kind: MapKind::Hash,
            key: Layout::unsigned(1),
            value,
            slots: 1,
            inner: None,
        };
        let mut numbers = Numbers::new(&Arc::new(Metric::example("m", layout)), Some("n")).unwrap();
        for filled in [1, 8, 16] {
            let values: Vec<u8> = (0..4 * (3 + size))
                .map(|at| {
                    if at % (3 + size) < 3 + filled {
                        at as u8 + 170
                    } else {
                        0
                    }
                })
                .collect();
            let column = numbers.column(&values);
            assert_eq!(column.len(), 4);
            for (row, value) in values.chunks(3 + size).enumerate() {
                assert_eq!(
                    column.get(row),
                    Some(numbers.of(value)),
                    "{size} {render:?} {filled}"
                );
            }
        }
    }
}

#[test]
fn columns_of_both_kinds_are_one() {
    let words = || NumberColumn::Words(vec![1, 2]);
    let wide = || NumberColumn::Numbers(vec![Number::Float(0.5)]);
    let joined = |mut one: NumberColumn, other| {
        one.append(other);
        (0..one.len())
            .filter_map(|row| one.get(row))
            .map(Number::as_f64)
            .collect::<Vec<_>>()
    };
    assert_eq!(joined(words(), words()), [1.0, 2.0, 1.0, 2.0]);
    assert_eq!(joined(words(), wide()), [1.0, 2.0, 0.5]);
    assert_eq!(joined(wide(), words()), [0.5, 1.0, 2.0]);
}

#[test]
fn numbers_of_cpus_become_one() {
    let values = [1, 10, 0, 0, 1, 5, 0, 0];
    let summed = metric(MapKind::PercpuHash, 2).with(|head| head.agg = Some(Aggregation::Max));
    let one = |number| vec![(7, Number::Integer(number))];
    assert_eq!(numbers(summed, None, &values), one(10));
    assert_eq!(
        numbers(metric(MapKind::PercpuHash, 2), None, &values),
        one(15),
        "of all CPUs"
    );
}

#[test]
fn an_unknown_path_lists_those_that_there_are() {
    let error = Numbers::new(&Arc::new(metric(MapKind::Hash, 1)), Some("byte")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value has no number byte; it has port, packets, sizes"
    );
}

#[test]
fn keys_are_those_of_documents() {
    let metric = Arc::new(metric(MapKind::Hash, 1));
    assert_eq!(
        Numbers::new(&metric, None)
            .unwrap()
            .key(&[9], &Context::default()),
        "9"
    );
}
