//! The receiver of decoded values.

use std::fmt;

/// Receives one value, part by part, and writes it in its format.
pub trait ValueSink {
    /// The name of a struct's member in the form that the format writes. It is made once per
    /// metric.
    type Label: Send + Sync + 'static;

    /// Converts the name of a member to the form that the format writes.
    fn label(name: &str) -> Self::Label;

    fn unsigned(&mut self, value: u64);
    fn signed(&mut self, value: i64);
    /// Writes an integer that may have more than 64 bits, by its decimal digits.
    fn integer(&mut self, digits: &str);
    /// Writes a float of 4 or 8 bytes. `text` is the shortest decimal form that reads back as the
    /// same number, with an exponent instead of hundreds of zeros; formats write this text unless
    /// the number is infinite or NaN.
    fn float(&mut self, value: f64, text: fmt::Arguments<'_>);
    fn boolean(&mut self, value: bool);
    /// Writes text from a map, which may need escaping.
    fn text(&mut self, value: &str);
    /// Writes text made by a rendering, which has only ASCII letters, digits and `.:-`.
    fn plain(&mut self, value: &[u8]);
    /// Writes the first `len` bytes of a text as [`Self::plain`] does. A format may copy all 16
    /// bytes and cut the rest off again, which is faster than copying a number of bytes that the
    /// compiler does not know.
    fn short(&mut self, value: &[u8; 16], len: usize) {
        self.plain(&value[..len]);
    }

    fn begin_struct(&mut self) {}
    fn begin_member(&mut self, _index: usize, _label: &Self::Label) {}
    fn end_member(&mut self, _label: &Self::Label) {}
    fn end_struct(&mut self) {}

    fn begin_array(&mut self) {}
    fn begin_item(&mut self, _index: usize) {}
    fn end_item(&mut self) {}
    fn end_array(&mut self) {}
}
