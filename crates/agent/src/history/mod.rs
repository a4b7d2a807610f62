//! Charts beyond the retained windows, from a server with the API of Prometheus that stores the
//! samples of this daemon.

pub mod answer;
pub mod ask;
pub mod expression;
pub mod options;
pub mod steps;
