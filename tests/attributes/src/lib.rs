//! Attributes of tests that say where a test runs. `docs/tests.md` has the table of commands.
//!
//! ```ignore
//! #[alone("it turns a switch of the whole machine")]
//! fn the_next_daemon_turns_the_switch_off() -> Result<()> { ... }
//! ```
//!
//! The attribute takes the place of `#[test]`. The test `f` becomes the module `f` with a test of
//! the attribute's name, because test runners choose tests by their names:
//! `expedited::the_next_daemon_turns_the_switch_off::alone`.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// A test beside which no other test may run, and the reason. Part of `make test`.
#[proc_macro_attribute]
pub fn alone(reason: TokenStream, test: TokenStream) -> TokenStream {
    moved("alone", "", reason, test)
}

/// Marks a test that measures time or cost, with the reason. A busy machine distorts such
/// measurements. `make bench` runs it, `make test` does not.
#[proc_macro_attribute]
pub fn timed(reason: TokenStream, test: TokenStream) -> TokenStream {
    moved("timed", "make bench runs it", reason, test)
}

/// A test that takes long, and the reason. `make soak` runs it, `make test` does not.
#[proc_macro_attribute]
pub fn soak(reason: TokenStream, test: TokenStream) -> TokenStream {
    moved("soak", "make soak runs it", reason, test)
}

/// Returns the module that takes the place of the function `test`.
fn moved(kind: &str, runs: &str, reason: TokenStream, test: TokenStream) -> TokenStream {
    let Some(TokenTree::Literal(reason)) = reason.into_iter().next() else {
        return error(&format!("a reason is missing: #[{kind}(\"why\")]"));
    };
    let reason = reason.to_string();
    let Some(reason) = reason
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return error(&format!("the reason is a string: #[{kind}(\"why\")]"));
    };
    let mut tokens: Vec<TokenTree> = test.into_iter().collect();
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let Some(place) = tokens.iter().position(is_fn) else {
        return error("not a function");
    };
    let Some(TokenTree::Ident(name)) = tokens.get(place + 1).cloned() else {
        return error("a function without a name");
    };
    tokens[place + 1] = TokenTree::Ident(Ident::new(kind, name.span()));

    let ignored = if runs.is_empty() {
        String::new()
    } else {
        format!("#[ignore = \"{reason}; {runs}\"]")
    };
    let head = format!("#[allow(unused_imports)] use super::*; #[test] {ignored}");
    let mut body: TokenStream = head.parse().expect("Rust");
    body.extend(tokens);
    let module = [
        TokenTree::Ident(Ident::new("mod", Span::call_site())),
        TokenTree::Ident(name),
        TokenTree::Group(Group::new(Delimiter::Brace, body)),
    ];
    module.into_iter().collect()
}

/// Returns a compile error.
fn error(message: &str) -> TokenStream {
    format!("compile_error!({message:?});")
        .parse()
        .expect("Rust")
}
