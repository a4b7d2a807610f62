//! Who may do what, and what is promised against those who may not.

mod limits;
