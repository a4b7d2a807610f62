//! The documentation: every command of its pages runs and prints the output on the page, generated
//! pages are current, and every link has a target.

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
