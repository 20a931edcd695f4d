//! Golden cases and models against what oracles said of them.
//!
//! Damaged files are validated as well (`damaged.rs`, `fuzz.rs`); hostile scatters are in `hostile.rs`.
//!
//! `OVIR_FILTER=substring cargo test -p ovir --test suite` runs the cases whose name holds the substring.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod suite {
    pub mod compare;
    pub mod damaged;
    pub mod element_types;
    pub mod extensions;
    pub mod fuzz;
    pub mod golden;
    pub mod hostile;
    pub mod models;
    pub mod operations;
    pub mod scatter;
    pub mod shapes;
}
