//! Documents as answers: the format that a client wants, and the pace at which the client takes the document.

pub mod document;
pub mod negotiate;
pub mod pieces;
pub mod rendering;
pub mod scrape;
pub mod several;
pub mod top;
