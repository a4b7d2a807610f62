//! The steps in a binary without the feature `points`.

use std::io;

#[inline(always)]
pub const fn point(_step: &str) {}

#[inline(always)]
pub const fn fault(_step: &str) -> io::Result<()> {
    Ok(())
}

#[inline(always)]
pub const fn pause(_step: &str) {}
