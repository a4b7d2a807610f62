use super::*;

#[test]
fn twins_share_one_or_have_one_each() {
    let mut made = Vec::new();
    let mut make = |twin: usize| {
        made.push(twin);
        Ok::<_, ()>(10 + twin)
    };
    let shared = Twins::make(false, &mut make).unwrap();
    let private = Twins::make(true, &mut make).unwrap();
    assert_eq!(made, [0, 0, 1]);
    assert_eq!((shared.each(), private.each()), (&[10][..], &[10, 11][..]));
    // Epochs are numbers of twins as well: the parity names the twin.
    for (epoch, (of_shared, of_private)) in
        [(0, (10, 10)), (1, (10, 11)), (6, (10, 10)), (7, (10, 11))]
    {
        assert_eq!(
            (*shared.of_twin(epoch), *private.of_twin(epoch)),
            (of_shared, of_private),
            "{epoch}"
        );
    }
}

#[test]
fn a_second_twin_that_can_not_be_made_leaves_none() {
    let second_fails = |twin| if twin == 0 { Ok(()) } else { Err("no room") };
    assert_eq!(Twins::make(true, second_fails).unwrap_err(), "no room");
    assert!(Twins::make(false, second_fails).is_ok());
}
