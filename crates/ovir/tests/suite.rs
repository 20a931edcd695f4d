//! Golden cases and models against what oracles said of them.
//!
//! `OVIR_FILTER=substring cargo test -p ovir --test suite` runs the cases whose name holds the substring.

#![allow(missing_docs)]

mod suite {
    pub mod compare;
    pub mod golden;
    pub mod models;
}
