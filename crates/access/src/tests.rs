//! Any content of a file or of a header is understood or refused.

use std::time::Duration;

use crate::access::bearer;
use crate::client_roles::ClientRoles;
use crate::tokens::Tokens;

const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn run(name: &str, seeds: &[&str], body: fn(&str)) {
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    twinprobe_fuzz::runner::run(name, Duration::from_secs(1), &seeds, |input| {
        body(&String::from_utf8_lossy(input));
    });
}

/// Asserts that mistakes name lines of the text, and that no mistake quotes its line.
fn check(text: &str, mistakes: &[crate::lines::Mistake]) {
    for mistake in mistakes {
        let line = text
            .lines()
            .nth(mistake.line - 1)
            .expect("a line of the text");
        let secret = line.split_whitespace().find(|word| word.len() >= 32);
        assert!(
            secret.is_none_or(|secret| !mistake.message.contains(secret)),
            "{mistake:?}"
        );
    }
}

#[test]
fn files_of_tokens() {
    let line = format!(
        "ci-bot operator {DIGEST} # until May\r\n\n#\nb admin {}\n",
        DIGEST.to_uppercase()
    );
    run(
        "tokens",
        &[&line, "a\tviewer\u{85}é", "test"],
        |text| match Tokens::parse(text) {
            Ok(tokens) => assert!(text.contains("test") || tokens.owner(text).is_none()),
            Err(mistakes) => check(text, &mistakes),
        },
    );
}

#[test]
fn files_of_client_roles() {
    let lines =
        "a.example viewer\nspiffe://x/y admin # the deployer\n\n10.0.0.1 collector\nuri:* operator";
    run(
        "client-roles",
        &[lines, "a viewer\na viewer"],
        |text| match ClientRoles::parse(text) {
            Ok(roles) => assert!(roles.owner(&[]).is_none()),
            Err(mistakes) => check(text, &mistakes),
        },
    );
}

#[test]
fn authorization_headers() {
    let seeds = [
        "Bearer tp_0123456789abcdef",
        "bearer  x y",
        " BEARER\tx",
        "Basic YTpi",
        "Bearer ",
        "",
    ];
    run("authorization", &seeds, |value| {
        if let Some(token) = bearer(value) {
            let scheme = value.trim().get(..7).expect("a scheme before the token");
            assert!(
                scheme.eq_ignore_ascii_case("bearer ")
                    && !token.is_empty()
                    && value.trim().ends_with(token)
            );
        }
    });
}
