//! The binary over real directories, as a user runs it: every verb, its exit status, what goes to which
//! stream; and what hostile files and arguments make of it.

#[path = "../support/mod.rs"]
mod support;

mod execute;
mod goldens;
mod hostile_flow;
mod hostile_names;
mod hostile_paths;
mod lists;
mod project;
mod reports;
mod scale;
mod screen;
mod shipped;
mod statuses;
mod trees;
mod writing;
