//! Documents as answers: which format a client wants, and how it gets the document at its own pace.

pub mod document;
pub mod negotiate;
pub mod pieces;
pub mod rendering;
pub mod scrape;
pub mod several;
pub mod top;
