//! Run and validate OpenVINO IR models in pure Rust.
