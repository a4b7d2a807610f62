//! Documents as answers: the format that a client wants, and the speed at which the client reads
//! the document.

pub mod document;
pub mod negotiate;
pub mod pieces;
pub mod rendering;
pub mod scrape;
pub mod several;
pub mod top;
