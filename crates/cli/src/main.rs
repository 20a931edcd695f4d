//! The `ovir` command line.

fn main() {}
