//! Run and validate OpenVINO IR models in pure Rust.
//!
//! The nouns are OpenVINO's: a [`Core`] reads models, a [`Model`] is inspected, reshaped and compiled, a
//! [`CompiledModel`] is shared by any number of [`InferRequest`]s.
//!
//! ```no_run
//! use ovir::{CompileOptions, Core, Tensor};
//!
//! let core = Core::new();
//! let model = core.read_model("model.xml")?;
//! let compiled = core.compile_model(&model, &CompileOptions::default())?;
//! let mut request = compiled.create_infer_request();
//! request.set_input_tensor(0, Tensor::from_slice(&[0f32; 3 * 224 * 224], [1, 3, 224, 224])?)?;
//! request.infer()?;
//! println!("{:?}", request.output_tensor(0)?);
//! # Ok::<(), ovir::Error>(())
//! ```

mod compiled;
mod core;
mod error;
mod keys;
mod model;
mod request;

pub use crate::compiled::{CompileOptions, CompiledModel};
pub use crate::core::{Core, ReadOptions, Validation};
pub use crate::error::Error;
pub use crate::model::{Model, OperationInfo, Port};
pub use crate::request::{CancelHandle, InferRequest, VariableState};

pub use ovir_diagnostics as diagnostics;
/// Lower-level access: the graph of a model.
pub use ovir_graph as graph;
pub use ovir_graph::{Inference, Preprocessing};
/// Lower-level access: documents, weights and files that appear whole or not at all.
pub use ovir_ir as ir;
pub use ovir_ops as ops;
pub use ovir_runtime::{Profile, ProfileEntry, RunError, VariableInfo, available_threads};
/// Lower-level access: tensors, npy and npz files.
pub use ovir_tensor as tensor;
pub use ovir_tensor::{
    Dim, ElementType, ForeignBytes, PartialShape, Shape, Tensor, TensorError, TensorView, bf16, f16,
};
