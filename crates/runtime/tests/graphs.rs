//! Small graphs run by kernels against the same graphs run by reference evaluations.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "graphs/attention.rs"]
mod attention;
#[path = "graphs/blocked.rs"]
mod blocked;
#[path = "graphs/bodies.rs"]
mod bodies;
#[path = "graphs/counts.rs"]
mod counts;
#[path = "graphs/einsum.rs"]
mod einsum;
#[path = "graphs/elementwise.rs"]
mod elementwise;
#[path = "graphs/few_elements.rs"]
mod few_elements;
#[path = "graphs/initialisers.rs"]
mod initialisers;
#[path = "graphs/integers.rs"]
mod integers;
#[path = "graphs/normalization.rs"]
mod normalization;
#[path = "graphs/precision.rs"]
mod precision;
#[path = "graphs/promises.rs"]
mod promises;
#[path = "graphs/quantized.rs"]
mod quantized;
#[path = "graphs/random.rs"]
mod random;
#[path = "graphs/rows.rs"]
mod rows;
#[path = "graphs/scales.rs"]
mod scales;
#[path = "graphs/slices.rs"]
mod slices;
#[path = "graphs/stored.rs"]
mod stored;
#[path = "graphs/strides.rs"]
mod strides;
#[path = "graphs/text.rs"]
mod text;
#[path = "graphs/transposes.rs"]
mod transposes;
#[path = "graphs/vectors.rs"]
mod vectors;
#[path = "graphs/views.rs"]
mod views;
