//! The differences between the protocols.

use reqwest::StatusCode;

use crate::http::access::HttpAnswer;
use crate::receiver::StreamWindow;
use crate::samples::document::SampleDocument;

/// A protocol that sends samples in messages.
pub trait PushProtocol: Send + Sync + 'static {
    /// The parts of a message.
    type Point: Send + Sync;

    /// The headers of a message.
    fn headers(&self) -> &'static [(&'static str, &'static str)];

    /// True if an answer shows that the receiver does not read the message's version of the
    /// protocol. Then the protocol switches to another version, and the caller must write and send
    /// the message again.
    fn has_turned(&self, _: &HttpAnswer) -> bool {
        false
    }

    /// Returns the points that describe a window itself.
    fn about(&self, window: &StreamWindow) -> Vec<Self::Point>;

    /// Returns the points of a window's document, or of a piece of it.
    fn points(&self, window: &StreamWindow, document: &SampleDocument<'_>) -> Vec<Self::Point>;

    /// Returns a point as one line for people; `None` for a point that describes other points.
    fn shown(&self, point: &Self::Point) -> Option<String>;

    /// Returns the approximate number of bytes that a point adds to a message before compression.
    fn size(&self, point: &Self::Point) -> usize;

    /// Returns the number of samples in a point, as the receiver counts them.
    fn samples(&self, point: &Self::Point) -> u64;

    /// Returns the body of a message with the points of these windows.
    fn message(&self, parts: &[(&StreamWindow, &[Self::Point])]) -> Vec<u8>;

    /// Reads the answer to a message that the receiver has taken. Returns the number of samples
    /// that the receiver refuses, and the reason; `None` if it refuses none.
    fn rejected(&self, answer: &[u8]) -> Option<(u64, String)>;

    /// Tells whether the receiver will never accept the same message, by the rules of the protocol.
    fn is_final(&self, status: StatusCode) -> bool;

    /// True if these words of a refusal mean that the receiver has later samples. Windows come in
    /// order, so the receiver also has these samples.
    fn is_repeat(&self, refusal: &str) -> bool;

    /// Returns the text of a refusal, from the body of an answer.
    fn words(&self, answer: &[u8]) -> String;
}
