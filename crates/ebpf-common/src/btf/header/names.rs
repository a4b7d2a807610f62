//! Names in the header. A kernel has types of the same name that differ, and names that C does not
//! allow.

use std::collections::HashMap;

/// The names of one name space of C.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, u32>);

impl Names {
    /// Returns the name for the next type or value that wants it. The second owner of `x` gets
    /// `x___2`, because CO-RE ignores three underscores and everything after them.
    pub fn take(&mut self, name: &str) -> String {
        let mut name = in_c(name);
        let count = self.0.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count > 1 {
            name = format!("{name}___{count}");
        }
        name
    }
}

/// Returns a name that C allows. Names of other languages may contain other characters.
pub(super) fn in_c(name: &str) -> String {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let mut made: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if !made.starts_with(is_first) {
        made.insert(0, '_');
    }
    made
}
