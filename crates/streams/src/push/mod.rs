//! Receivers that take samples over HTTP: they answer each message, and may refuse a part for good.

pub mod answer;
pub mod delivery;
pub mod options;
pub mod protocol;
pub mod receiver;
