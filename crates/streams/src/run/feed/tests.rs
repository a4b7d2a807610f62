use super::*;

fn listing(seqs: &[u64], lost: &[(u64, u64)]) -> Listing {
    let entry = |seq: &u64| WindowEntry {
        seq: *seq,
        start: String::new(),
        end: String::new(),
        bytes: 1,
    };
    let range = |(first, last): &(u64, u64)| LostRange {
        first: *first,
        last: *last,
        windows: last - first + 1,
    };
    Listing {
        windows: seqs.iter().map(entry).collect(),
        lost: lost.iter().map(range).collect(),
        ..Listing::default()
    }
}

fn shown(steps: &[Step<'_>]) -> String {
    let mut shown = Vec::new();
    for Step { gaps, entry } in steps {
        shown.extend(
            gaps.iter()
                .map(|range| format!("({}-{})", range.first, range.last)),
        );
        shown.push(entry.seq.to_string());
    }
    shown.join(" ")
}

#[test]
fn gaps_stand_where_their_windows_were() {
    let list = listing(&[4, 5, 9], &[(1, 3), (6, 7)]);
    assert_eq!(
        shown(&steps(&list, 0, true)),
        "(1-3) 4 5 (6-7) 9",
        "8 was a scrape's window, which no list has"
    );
    let list = listing(&[4, 5, 9], &[]);
    assert_eq!(
        shown(&steps(&list, 0, false)),
        "4 5 (6-8) 9",
        "it is not known what was before the first"
    );
    assert_eq!(shown(&steps(&list, 2, false)), "(3-3) 4 5 (6-8) 9");
    assert_eq!(shown(&steps(&list, 2, true)), "4 5 9");
    let list = listing(&[1, 3, 9], &[(2, 2), (6, 7)]);
    assert_eq!(
        shown(&steps(&list, 0, false)),
        "1 (2-2) 3 (4-8) 9",
        "what was damaged is missing once"
    );
    let list = listing(&[9], &[(1, 3), (4, 7)]);
    assert_eq!(
        shown(&steps(&list, 5, true)),
        "(6-7) 9",
        "windows up to 5 are on their way"
    );
}
