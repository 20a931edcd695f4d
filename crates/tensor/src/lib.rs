//! Element types, dimensions, partial shapes and tensors.
//!
//! This crate knows nothing of operations or graphs. It owns the memory that everything else borrows:
//! aligned buffers, mapped files and tensors that share a foreign owner.

mod arena;
mod buffer;
mod dim;
pub mod dispatch;
mod element_type;
mod error;
#[cfg(feature = "mmap")]
mod mapped;
pub mod npy;
#[cfg(feature = "npz")]
pub mod npz;
pub mod packed;
mod pages;
mod shape;
mod tensor;
mod value;
mod view;

pub use arena::{Arena, ArenaLayout, ArenaParts, ReadParts, WriteParts};
pub use buffer::{AlignedBuffer, cast_mut};
pub use dim::{Dim, INFINITE, Symbol};
pub use element_type::{ElementClass, ElementType, NativeElement};
pub use error::TensorError;
#[cfg(feature = "mmap")]
pub use mapped::MappedFile;
pub use pages::{grow_heap, read_file, with_room};
pub use shape::{MAX_RANK, PartialShape, Shape};
pub use tensor::{ForeignBytes, Tensor};
pub use value::{Bounds, MAX_BOUNDS_ELEMENTS, Value};
pub use view::{TensorView, TensorViewMut, ViewData, ViewDataMut};

pub use half::{bf16, f16};
pub use smallvec::SmallVec;
