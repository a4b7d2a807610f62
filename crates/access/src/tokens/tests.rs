//! Tests of tokens and of their files.

use proptest::prelude::*;

use super::*;

const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn a_token_is_known_by_its_digest() {
    let text = format!("# the deployer\n\nci-bot operator {DIGEST}  # until May\n");
    let tokens = Tokens::parse(&text).unwrap();
    let owner = Principal {
        who: Who::Token("ci-bot".into()),
        role: Some(Role::Operator),
    };
    assert_eq!(tokens.owner("test"), Some(owner));
    for other in ["", "tes", "test ", "Test", DIGEST] {
        assert_eq!(tokens.owner(other), None, "{other:?}");
    }
    assert_eq!(
        Tokens::parse(&text.to_uppercase().replace("OPERATOR", "operator"))
            .unwrap()
            .0[0]
            .digest,
        tokens.0[0].digest
    );
}

#[test]
fn a_new_token_is_long_and_fits_its_line() {
    let (one, two) = (generate().unwrap(), generate().unwrap());
    assert!(one != two && one.len() == 67 && one.starts_with(PREFIX));
    let text = [("a", Role::Viewer, &one), ("a", Role::Admin, &two)]
        .map(|(n, r, t)| line(n, r, t))
        .join("\n");
    assert!(!text.contains(&one[3..]));
    let tokens = Tokens::parse(&text).unwrap();
    assert_eq!(tokens.owner(&one).unwrap().role, Some(Role::Viewer));
    assert_eq!(tokens.owner(&two).unwrap().role, Some(Role::Admin));
}

#[test]
fn every_mistake_is_reported_with_its_line_and_without_its_text() {
    let secret = "tp_a-token-in-the-wrong-place";
    let text = format!(
        "ok viewer {DIGEST}\nsame viewer {DIGEST}\n{secret}\na {secret} {DIGEST}\na viewer {secret}\na viewer {}\n\
         # {secret}\na viewer {DIGEST} x\na\u{7f}b viewer {DIGEST}\na viewer é{}",
        &DIGEST[1..],
        &DIGEST[2..]
    );
    let mistakes = Tokens::parse(&text).unwrap_err();
    let lines: Vec<usize> = mistakes.iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 8, 9, 10], "{mistakes:?}");
    assert!(!format!("{mistakes:?}").contains(secret));
}

proptest! {
    /// A file is accepted or refused. An accepted file knows only the tokens in its lines.
    #[test]
    fn any_text_is_parsed(text in "([a-z#]{0,3}[ \t\r]?(viewer|admin|x)[ \n]([0-9a-fA-F]{64}|é{0,9}|.{0,70})\n?){0,5}|\\PC*") {
        if let Ok(tokens) = Tokens::parse(&text) {
            prop_assert!(tokens.0.len() <= text.lines().count());
            prop_assert!(tokens.owner(&text).is_none());
        }
    }
}
