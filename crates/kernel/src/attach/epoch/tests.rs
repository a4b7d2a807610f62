//! Epoch words in ordinary memory.

use std::collections::BTreeSet;

use super::*;

/// Words in a file without a name instead of a map.
fn words(bytes: usize) -> MappedWords {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes as u64).unwrap();
    let memory = Mapping::new(file.as_fd(), 0, bytes, MappingAccess::ReadWrite).unwrap();
    MappedWords {
        map: file.into(),
        memory,
        adopted: false,
    }
}

fn page() -> Arc<Page> {
    Page::of(0, words(BYTES), words(CLOCK_BYTES))
}

fn moment(nanoseconds: i128, boot_ns: u64) -> Moment {
    Moment {
        wall: Timestamp::from_nanosecond(nanoseconds).unwrap(),
        boot_ns,
    }
}

#[test]
fn every_place_is_given_once() {
    let page = page();
    let mut taken: Vec<EpochWord> = std::iter::from_fn(|| page.allocate(1))
        .take(PLACES)
        .collect();
    let places: BTreeSet<usize> = taken.iter().map(EpochWord::place).collect();
    assert_eq!((taken.len(), places.len()), (PLACES - 2, PLACES - 2));
    for word in &taken {
        let offset = word.offset();
        assert!(i16::try_from(offset).is_ok() && usize::try_from(offset).unwrap() < BYTES);
        assert!(
            Hook::ALL
                .iter()
                .all(|hook| Page::pass_offset(*hook) != offset)
        );
    }
    let freed = taken.swap_remove(100).place();
    assert!(taken.iter().all(|word| page.claim(word.place()).is_none()));
    let again = page.allocate(1).unwrap();
    assert_eq!(again.place(), freed);
    assert!(page.allocate(1).is_none());
}

#[test]
fn constants_are_nobodys_place() {
    let page = page();
    for hook in Hook::ALL {
        assert!(page.claim(Page::pass_place(hook)).is_none());
        let word = page.epochs.memory.u64(Page::pass_offset(hook) as usize);
        // A dispatcher loads 32 bits.
        assert_eq!(
            word.load(Ordering::Relaxed) as u32 as i32,
            hook.pass(),
            "{hook:?}"
        );
    }
    assert!(page.claim(PLACES).is_none());
}

#[test]
fn a_claimed_place_is_as_it_was_left_and_an_allocated_one_begins_anew() {
    let page = page();
    let word = page.allocate(7).unwrap();
    let place = word.place();
    word.set_opened(moment(1000, 10));
    word.set_clearing(word.flip());
    drop(word);
    let claimed = page.claim(place).unwrap();
    assert_eq!(
        (claimed.current(), claimed.unread(), claimed.is_clearing(7)),
        (8, Some(7), true)
    );
    assert_eq!(claimed.opened(), moment(1000, 10));
    drop(claimed);
    let new = page.allocate(2).unwrap();
    assert_eq!((new.place(), new.current(), new.unread()), (place, 2, None));
    assert!(new.opened() != moment(1000, 10) && !new.is_clearing(1));
}

/// The states of the idle twin between two flips, for even and odd epochs.
#[test]
fn a_window_is_unread_until_it_is_cleared() {
    let page = page();
    let (word, other) = (page.allocate(1).unwrap(), page.allocate(1).unwrap());
    for epoch in 1..=4 {
        assert_eq!((word.current(), word.unread()), (epoch, None));
        assert_eq!(word.flip(), epoch);
        assert_eq!(
            (word.current(), word.unread(), word.is_clearing(epoch)),
            (epoch + 1, Some(epoch), false)
        );
        word.set_clearing(epoch);
        // A twin that is being cleared still counts as unread.
        assert_eq!(
            (word.current(), word.unread(), word.is_clearing(epoch)),
            (epoch + 1, Some(epoch), true)
        );
        assert!(!word.is_clearing(epoch + 1));
        word.set_cleared(epoch);
        assert!(!word.is_clearing(epoch));
    }
    assert_eq!((other.current(), other.unread()), (1, None));
}

#[test]
fn two_clocks_tell_of_one_moment() {
    let page = page();
    let (word, other) = (page.allocate(1).unwrap(), page.allocate(1).unwrap());
    let before = other.opened();
    word.set_opened(moment(1000, 10));
    word.set_closed(moment(2000, 20));
    assert_eq!(
        (word.opened(), word.closed()),
        (moment(1000, 10), moment(2000, 20))
    );
    assert_eq!(other.opened(), before);
    // A daemon that does not know the second map has stored only its own start in the first map.
    word.word(OPENED).store(3000, Ordering::SeqCst);
    assert_eq!(
        (word.opened(), word.closed()),
        (moment(3000, 0), moment(2000, 20))
    );
    word.set_opened(moment(4000, 40));
    assert_eq!(word.opened(), moment(4000, 40));
}

/// The maps of pages that earlier daemons have pinned; other files may be beside them.
#[test]
fn all_pages_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let last = || last_page(directory.path()).unwrap();
    assert_eq!(last(), 0);
    for name in [
        "epochs",
        "clocks",
        "probes",
        "epochs_x",
        "stranger_7",
        "epochs_1024",
        "clocks_1",
    ] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    assert_eq!(last(), 1);
    std::fs::write(directory.path().join("epochs_12"), "").unwrap();
    assert_eq!(last(), 12);
}

#[test]
fn each_page_has_places_of_its_own() {
    let pages = [0, 1].map(|number| Page::of(number, words(BYTES), words(CLOCK_BYTES)));
    let words = EpochWords {
        bpffs: "/nowhere".into(),
        pages: Mutex::new(pages.into()),
    };
    let taken: Vec<EpochWord> = (0..2 * (PLACES - 2))
        .map(|_| words.allocate(1).unwrap())
        .collect();
    let places: BTreeSet<usize> = taken.iter().map(EpochWord::place).collect();
    assert_eq!(
        (places.len(), places.iter().max()),
        (taken.len(), Some(&(2 * PLACES - 1)))
    );
    assert!(words.allocate(1).is_err(), "no page can be made there");
    let place = places
        .iter()
        .copied()
        .find(|place| *place > PLACES)
        .unwrap();
    taken
        .iter()
        .find(|word| word.place() == place)
        .unwrap()
        .flip();
    assert!(words.claim(place).is_none());
    drop(taken);
    assert_eq!(words.claim(place).unwrap().current(), 2);
    assert!(words.claim(PLACES).is_none(), "a constant is there");
    assert!(words.claim(2 * PLACES + 2).is_none() && words.claim(usize::MAX).is_none());
}
