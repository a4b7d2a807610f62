//! The layouts of earlier readings. The windows of a deployment share their layouts, and in a small
//! window the layouts are most of the text before the rows.

use std::sync::{Arc, Mutex, PoisonError};

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};
use serde_json::value::RawValue;

use crate::table::TableLayout;

/// The most layouts that are kept, and the longest text of a layout in bytes. Together the texts
/// take at most half a MiB.
const MOST: usize = 32;
const LONGEST: usize = 16 << 10;

/// The texts of layouts with the parsed layouts. The last one was used most recently.
static KNOWN: Mutex<Vec<(Box<RawValue>, Arc<TableLayout>)>> = Mutex::new(Vec::new());

/// Reads a layout. Equal texts that follow each other closely give the same object, and not a copy.
pub fn layout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<TableLayout>, D::Error> {
    let text = Box::<RawValue>::deserialize(deserializer)?;
    let is_text = |(known, _): &(Box<RawValue>, _)| known.get() == text.get();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = known.iter().rposition(is_text) {
        let found = known.remove(place);
        let layout = Arc::clone(&found.1);
        known.push(found);
        return Ok(layout);
    }
    drop(known);
    let layout = Arc::new(parse(&text).map_err(D::Error::custom)?);
    if text.get().len() <= LONGEST {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.remove(0);
        }
        known.push((text, Arc::clone(&layout)));
    }
    Ok(layout)
}

fn parse(text: &RawValue) -> serde_json::Result<TableLayout> {
    let mut json = serde_json::Deserializer::from_str(text.get());
    // Structs in structs may nest deeply.
    json.disable_recursion_limit();
    TableLayout::deserialize(&mut json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, MapKind, Shape};

    fn read(text: &str) -> serde_json::Result<Arc<TableLayout>> {
        layout(&mut serde_json::Deserializer::from_str(text))
    }

    fn example(slots: usize) -> TableLayout {
        let number = Layout {
            size: 8,
            shape: Shape::Int { signed: false },
            render: None,
        };
        TableLayout {
            kind: MapKind::PercpuHash,
            key: number.clone(),
            value: number,
            slots,
            inner: None,
        }
    }

    #[test]
    fn equal_texts_give_one_layout_and_other_texts_give_their_own() {
        let texts: Vec<String> = (7_000..7_004)
            .map(|slots| serde_json::to_string(&example(slots)).unwrap())
            .collect();
        let first: Vec<_> = texts.iter().map(|text| read(text).unwrap()).collect();
        for (slots, (text, first)) in (7_000..).zip(texts.iter().zip(&first)) {
            let again = read(text).unwrap();
            assert!(Arc::ptr_eq(&again, first), "{slots}");
            assert_eq!(*again, example(slots));
        }
    }

    #[test]
    fn more_layouts_than_are_kept_are_read_anew() {
        for _ in 0..2 {
            for slots in 0..2 * MOST {
                assert_eq!(
                    *read(&serde_json::to_string(&example(slots)).unwrap()).unwrap(),
                    example(slots)
                );
            }
        }
        assert!(KNOWN.lock().unwrap().len() <= MOST);
    }

    #[test]
    fn a_text_that_describes_no_layout_is_an_error_each_time() {
        for text in ["{}", "3", r#"{"kind":"nothing"}"#, r#"{"kind":"#] {
            assert!(read(text).is_err() && read(text).is_err(), "{text}");
        }
    }
}
