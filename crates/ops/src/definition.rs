//! What an operation is: its definition in the registry, and an instance with parsed attributes.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ovir_tensor::TensorView;

use crate::{AttributeDef, AttributeReader, BodyPorts, EvaluateContext, InferContext, OpResult};

/// The folder of the specification that describes an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Category {
    Activation,
    Arithmetic,
    Bitwise,
    Comparison,
    Condition,
    Convolution,
    Detection,
    Generation,
    Image,
    Infrastructure,
    Internal,
    Logical,
    Matrix,
    Movement,
    Normalization,
    Pooling,
    Quantization,
    Reduction,
    Sequence,
    Shape,
    Signals,
    Sort,
    Sparse,
    Type,
    /// An operation that a user registered.
    User,
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

/// One class version of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpVersion {
    /// The class version of the specification: 12 of ScatterElementsUpdate-12.
    pub class_version: u8,
    /// The first opset that has it, which is also how the `version` attribute is written.
    pub first_opset: u8,
    /// The last opset that has it.
    pub last_opset: u8,
    /// The smallest and largest number of inputs.
    pub inputs: (usize, usize),
    /// The smallest and largest number of outputs.
    pub outputs: (usize, usize),
}

impl OpVersion {
    /// A version that the opsets `first..=last` have, with its numbers of ports.
    pub const fn new(
        class_version: u8,
        opsets: (u8, u8),
        inputs: (usize, usize),
        outputs: (usize, usize),
    ) -> OpVersion {
        OpVersion { class_version, first_opset: opsets.0, last_opset: opsets.1, inputs, outputs }
    }
}

/// The entry of an operation in the registry.
pub struct OpDef {
    /// The type as IR writes it: `ScatterUpdate`, `ReLU`, `Const`.
    pub type_name: &'static str,
    /// The specification's folder.
    pub category: Category,
    /// The class versions, oldest first.
    pub versions: &'static [OpVersion],
    /// The attributes of all versions.
    pub attributes: &'static [AttributeDef],
    /// Makes an instance from attributes; what is wrong with them is collected in the reader.
    pub build: fn(&mut BuildContext<'_, '_>) -> Arc<dyn Operation>,
}

impl OpDef {
    /// An operation of a user, with any number of ports; [`crate::attributes!`] states its attributes. Where the number of
    /// ports is fixed, write the structure with one [`OpVersion`]: layers with other numbers are then reported.
    pub const fn of_user(
        type_name: &'static str,
        attributes: &'static [AttributeDef],
        build: fn(&mut BuildContext<'_, '_>) -> Arc<dyn Operation>,
    ) -> OpDef {
        OpDef { type_name, category: Category::User, versions: &[], attributes, build }
    }
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name)
    }
}

/// What an instance is made from.
pub struct BuildContext<'r, 'a> {
    /// The attributes.
    pub attributes: &'r mut AttributeReader<'a>,
    /// The class version that `version="opsetN"` resolved to.
    pub class_version: u8,
    /// The number of input ports.
    pub input_count: usize,
    /// The number of output ports.
    pub output_count: usize,
    /// The port maps of the bodies of If, Loop and TensorIterator.
    pub bodies: Vec<BodyPorts>,
}

/// What an operation does besides computing its outputs from its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effects {
    /// Nothing: equal inputs give equal outputs, so it may be folded, merged and dropped.
    #[default]
    None,
    /// It draws from the request's random stream.
    Random,
    /// It reads or writes a variable.
    State,
    /// It is part of the interface of the model: Parameter and Result.
    Interface,
}

/// An instance of an operation: its meaning with parsed attributes.
pub trait Operation: Any + fmt::Debug + Send + Sync {
    /// Checks the inputs and gives element types, shapes and, for shape subgraphs, values of the outputs.
    ///
    /// It must be monotone: wider inputs give wider outputs. It allocates nothing up to rank 8.
    ///
    /// # Errors
    /// The rule that the inputs violate. Further independent violations go to [`InferContext::report`].
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult;

    /// Computes the outputs: the plain reference. Shapes are exact here and agree with what `infer` promised.
    ///
    /// # Errors
    /// Violations that depend on data, such as an index out of range.
    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult;

    /// The attributes as they are written to IR.
    fn attributes(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What it does besides computing.
    fn effects(&self) -> Effects {
        Effects::None
    }

    /// The input whose memory the first output may take over when nobody else needs it: the operation changes a part
    /// of it and leaves the rest. [`EvaluateContext::is_in_place`] then tells `evaluate` that the output holds the
    /// input's data already.
    fn in_place_input(&self) -> Option<usize> {
        None
    }

    /// The byte ranges of the in-place input that `evaluate` overwrites, appended to `ranges`, so that a caller can put
    /// them back. The view of the in-place input has type and shape, but no bytes. Returns whether the ranges are all;
    /// otherwise the caller must keep everything.
    ///
    /// # Errors
    /// Violations that depend on data, as `evaluate` would report them.
    fn overwritten(&self, _inputs: &[TensorView<'_>], _ranges: &mut Vec<Range<usize>>) -> OpResult<bool> {
        Ok(false)
    }

    /// Whether the first output is the first input under another shape, bit for bit (Reshape, Squeeze...).
    fn is_reshape(&self) -> bool {
        false
    }

    /// Whether `evaluate` reads elements that share bytes (u1 to u6, i4, nf4, f4e2m1) as they are stored. For other operations
    /// each of them has a byte of its own, in an element type that stands for none.
    fn takes_packed(&self) -> bool {
        !self.bodies().is_empty()
    }

    /// The port maps of the bodies, for operations that have bodies.
    fn bodies(&self) -> &[BodyPorts] {
        &[]
    }

    /// The variable that it reads or writes.
    fn variable_id(&self) -> Option<&str> {
        None
    }
}

impl dyn Operation {
    /// The instance as its concrete type.
    pub fn downcast_ref<T: Operation>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref::<T>()
    }
}
