//! The documentation: every command of its pages is run and gives what the page shows, generated pages are current, and
//! every link leads somewhere.

mod commands;
mod compare;
mod configuration;
mod library;
mod links;
mod metrics;
mod page;
mod pages;
mod reference;
mod rest;
mod schema;
mod shell;
