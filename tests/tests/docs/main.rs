//! The documentation: every command of its pages is run and gives what the page shows, generated pages are current, and
//! every link leads somewhere.

mod compare;
mod page;
mod pages;
mod shell;
