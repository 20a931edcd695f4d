//! A small C interface to ovir: load, set, infer, get, error text.
