//! Run and validate OpenVINO IR models in pure Rust.
//!
//! The nouns are OpenVINO's: a [`Core`] reads models, a [`Model`] is inspected, reshaped and compiled, a
//! [`CompiledModel`] is shared by any number of [`InferRequest`]s.
//!
//! ```
//! use ovir::{CompileOptions, Core, Tensor};
//!
//! // Models are usually read from files by `read_model`; this one computes `y = relu(x + x)`.
//! let xml = br#"<net name="example" version="11">
//!     <layers>
//!         <layer id="0" name="x" type="Parameter" version="opset1">
//!             <data shape="?,3" element_type="f32"/>
//!             <output><port id="0" precision="FP32" names="x"><dim>-1</dim><dim>3</dim></port></output>
//!         </layer>
//!         <layer id="1" name="sum" type="Add" version="opset1">
//!             <input><port id="0"><dim>-1</dim><dim>3</dim></port><port id="1"><dim>-1</dim><dim>3</dim></port></input>
//!             <output><port id="2" precision="FP32"><dim>-1</dim><dim>3</dim></port></output>
//!         </layer>
//!         <layer id="2" name="relu" type="ReLU" version="opset1">
//!             <input><port id="0"><dim>-1</dim><dim>3</dim></port></input>
//!             <output><port id="1" precision="FP32" names="y"><dim>-1</dim><dim>3</dim></port></output>
//!         </layer>
//!         <layer id="3" name="result" type="Result" version="opset1">
//!             <input><port id="0"><dim>-1</dim><dim>3</dim></port></input>
//!         </layer>
//!     </layers>
//!     <edges>
//!         <edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
//!         <edge from-layer="0" from-port="0" to-layer="1" to-port="1"/>
//!         <edge from-layer="1" from-port="2" to-layer="2" to-port="0"/>
//!         <edge from-layer="2" from-port="1" to-layer="3" to-port="0"/>
//!     </edges>
//! </net>"#;
//! let core = Core::new();
//! let model = core.read_model_from_memory(xml, Vec::new())?;
//! assert_eq!(model.inputs()[0].shape.to_string(), "[?,3]");
//!
//! let compiled = core.compile_model(&model, &CompileOptions::default())?;
//! let mut request = compiled.create_infer_request();
//! request.set_tensor("x", Tensor::from_slice(&[-1f32, 0.5, 2.0], [1, 3])?)?;
//! request.infer()?;
//! assert_eq!(request.tensor("y")?.slice::<f32>()?, [0.0, 1.0, 4.0]);
//! # Ok::<(), ovir::Error>(())
//! ```
//!
//! A model with defects is not read; all of them can be seen, each with its place in the XML:
//!
//! ```
//! use ovir::diagnostics::{Report, SourceText, render_human};
//! use ovir::{Core, Error};
//!
//! let xml = r#"<net name="example" version="11">
//!     <layers>
//!         <layer id="0" name="x" type="Parameter" version="opset1">
//!             <data shape="2" element_type="f33"/>
//!             <output><port id="0" names="x"><dim>2</dim></port></output>
//!         </layer>
//!         <layer id="1" name="result" type="Result" version="opset1">
//!             <input><port id="0"><dim>2</dim></port></input>
//!         </layer>
//!     </layers>
//!     <edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges>
//! </net>"#;
//! let core = Core::new();
//! let validation = core.validate_memory(xml.as_bytes(), None, false);
//! assert!(!validation.is_valid());
//! let report = Report::new("example.xml", Some(SourceText::new(xml)), validation.diagnostics);
//! assert!(render_human(&[report], false).contains("example.xml:4"));
//! let error = core.read_model_from_memory(xml.as_bytes(), Vec::new()).unwrap_err();
//! assert!(matches!(error, Error::InvalidModel { .. }));
//! ```

#[cfg(feature = "run")]
mod compiled;
mod compress;
mod core;
mod error;
mod keys;
mod model;
pub mod random;
#[cfg(feature = "run")]
mod request;
#[cfg(feature = "run")]
pub mod scatter;

#[cfg(feature = "run")]
pub use crate::compiled::{CompileOptions, CompiledModel};
pub use crate::compress::Compression;
pub use crate::core::{Core, ReadOptions, Validation};
pub use crate::error::Error;
pub use crate::model::{Model, OperationInfo, Port};
#[cfg(feature = "run")]
pub use crate::request::{CancelHandle, InferRequest, VariableState};

pub use ovir_diagnostics as diagnostics;
/// Lower-level access: the graph of a model.
pub use ovir_graph as graph;
pub use ovir_graph::{Inference, Preprocessing};
/// Lower-level access: documents, weights and files that appear whole or not at all.
pub use ovir_ir as ir;
pub use ovir_ops as ops;
#[cfg(feature = "run")]
pub use ovir_optimize::{Note, PassReport, pass_names};
#[cfg(feature = "run")]
pub use ovir_runtime::{
    Helpers, InferencePrecision, Plan, PlanAction, PlanPlace, PlanStep, PlanValue, Profile, ProfileEntry, RunError,
    VariableInfo, available_threads,
};
/// Lower-level access: tensors, npy and npz files.
pub use ovir_tensor as tensor;
pub use ovir_tensor::{
    Dim, ElementType, ForeignBytes, PartialShape, Shape, Tensor, TensorError, TensorView, bf16, f16,
};
