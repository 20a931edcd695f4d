//! Fast loops over slices and geometry structs, chosen by instruction set at run time.
//!
//! Conventions shared by every function of this crate:
//!
//! * Slices are dense and row-major unless a geometry says otherwise; lengths are checked once on entry and a
//!   [`KernelError`] names the argument that does not fit. Nothing is written when an error is returned.
//! * The first argument `isa: Isa` picks the instruction-set tier. Take it from [`isa::detect`] once; tests iterate
//!   over [`Isa::available`]. Within one tier the result has the same bits for any number of threads.
//! * Kernels allocate nothing. Where memory is needed beyond the operands, the caller passes `scratch`, whose least
//!   length a function named `..._scratch_len` tells. Scratch content is arbitrary before and after the call.
//!   Packing of constants (`Packed...::pack`) owns its buffers and is meant for load time.
//! * Work is split by size only. A call forks only on a thread that leads a team (once per inference) or works in a
//!   rayon pool of more than one thread, and if it has enough work to pay for the fork; see [`parallel`].
//!
//! | module | what it computes |
//! |---|---|
//! | [`gemm`] | matrix products: packed constants, strided batches, few rows, f64 |
//! | [`convolution`] | convolution and transposed convolution of plain `[N, C, D, H, W]` data |
//! | [`blocked`] | convolution, depthwise convolution and pooling of `nChw16c` data, and the reorders |
//! | [`epilogue`] | bias, residual and activation fused into the two above |
//! | [`unary`], [`elementwise`], [`chain`] | functions of one operand, of two with broadcasting, and chains of both |
//! | [`map`], [`bits`] | conversions, functions of integers, functions of bits |
//! | [`softmax`], [`reduce`], [`reduce_integers`], [`cumulative`], [`normalization`], [`local_response`] | what runs along an axis |
//! | [`pooling`], [`adaptive`], [`interpolate`], [`resample`] | windows, parts and resizing over plain planes |
//! | [`attention`], [`recurrent`] | fused attention; LSTM and GRU sequences |
//! | [`scatter`] | updates of elements, rows and blocks, in place or into a copy |
//! | [`deformable`] | convolution with bent windows |
//! | [`position_sensitive`] | means of regions whose parts have channels of their own |
//! | [`fourier`] | discrete Fourier transforms |
//! | [`embedding`] | sums of rows of a table |
//! | [`random`] | random numbers |
//! | [`top_k`] | the best elements along an axis |
//! | [`color`] | images of luma and chroma as red, green and blue |
//! | [`movement`] | transposition, slices, tiles, concatenation, gathering and padding by byte width |

pub mod adaptive;
pub mod attention;
pub mod bits;
pub mod blocked;
pub mod chain;
pub mod color;
pub mod convolution;
pub mod cumulative;
pub mod deformable;
pub mod elementwise;
pub mod embedding;
pub mod epilogue;
pub mod error;
pub mod fourier;
pub mod gemm;
pub mod interpolate;
pub mod isa;
pub mod local_response;
pub mod map;
pub mod movement;
pub mod normalization;
pub mod parallel;
pub mod pooling;
pub mod position_sensitive;
pub mod quantized;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub mod reduce_integers;
pub mod resample;
pub mod rotary;
pub mod scatter;
pub mod softmax;
#[cfg(feature = "threads")]
pub mod team;
pub mod top_k;
pub mod unary;
pub mod widen;

#[cfg(feature = "threads")]
mod affinity;
mod band;
mod gelu;
mod inverse;
mod math;
mod packed;
mod simd;
mod stream;
#[cfg(test)]
mod testing;
mod tile;

pub use error::KernelError;
pub use isa::{Isa, Tier};
