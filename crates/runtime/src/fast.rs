//! The only place where operations meet kernels.
//!
//! A claim takes a layer and offers a [`Kernel`] for it; a layer that nobody claims runs its reference evaluation. A
//! kernel is made once for a compiled model: it packs its constant operands, and reads shapes when it runs.

mod adaptive;
mod attention;
mod averages;
mod bf16;
mod binary;
pub(crate) mod blocked;
mod chain;
mod color;
mod convert;
mod convolution;
mod cumulative;
mod deformable;
mod dynamic;
mod einsum;
mod embedding;
mod fake_quantize;
mod fourier;
mod indexed;
mod integer;
mod integer_codes;
mod interpolate;
mod layout;
mod mapped;
mod matmul;
mod movement;
mod normalization;
mod parts;
mod pooling;
mod position_sensitive;
mod quantized;
mod random;
mod recode;
mod recurrent;
mod reduce;
mod region_yolo;
mod regions;
mod rotary;
mod rows;
pub(crate) mod scatter;
mod select;
mod settled;
mod small_chain;
mod softmax;
mod stored_gather;
mod tabled;
mod top_k;
mod transposed;
mod unary;
mod views;

pub(crate) use parts::kernel_error;

use std::collections::HashMap;
use std::sync::Arc;

use ovir_graph::{Node, Source};
use ovir_ops::{Environment, EvaluateContext, OpResult, Operation, OutputSlot, OutputSlots, RandomStream, ValueFacts};
use ovir_tensor::{Shape, SmallVec, Tensor, TensorView, TensorViewMut};

use crate::decompression::Stored;
use crate::layout::Layout;
use crate::precision::InferencePrecision;

/// The shapes of a step's inputs and outputs.
pub(crate) struct StepShapes<'a> {
    /// Inputs.
    pub inputs: &'a [&'a Shape],
    /// Outputs.
    pub outputs: &'a [&'a Shape],
}

/// What a kernel reads and writes.
pub(crate) struct StepIo<'r, 'a> {
    /// Inputs. One that the kernel works on in place has its type and shape, but no bytes; one that was packed has
    /// whatever is there. Those behind the first [`Kernel::inputs_read`] may be missing.
    pub inputs: &'r [TensorView<'a>],
    /// Outputs.
    pub outputs: &'r mut [TensorViewMut<'a>],
    /// Memory of at least the length that the kernel asked for, 64-byte aligned.
    pub scratch: &'r mut [u8],
    /// The input whose data the first output holds already.
    pub in_place: Option<usize>,
    /// The random stream of the step.
    pub random: &'r mut RandomStream,
}

impl StepIo<'_, '_> {
    /// The reference evaluation, for a kernel that finds values which it does not take; not for one that works in place.
    ///
    /// # Errors
    /// What the operation says.
    pub fn evaluate(self, operation: &dyn Operation) -> OpResult {
        let mut slots: SmallVec<[OutputSlot<'_>; 2]> =
            self.outputs.iter_mut().map(|output| OutputSlot::Given(output.reborrow())).collect();
        let mut outputs = OutputSlots(&mut slots);
        let mut environment = Environment::unlimited();
        environment.random = *self.random;
        EvaluateContext::new(self.inputs, &mut outputs, &[], &mut environment, false).run(operation)?;
        *self.random = environment.random;
        Ok(())
    }
}

/// A fast implementation of one layer.
pub(crate) trait Kernel: Send + Sync {
    /// The path of its type, for plans that people look at.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Whether it can do these shapes; otherwise the reference does them.
    fn accepts(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    /// Whether values of the inputs can make the layer fail. Others have nothing to do where the outputs have no elements.
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        false
    }

    /// The bytes of scratch that it needs for these shapes.
    fn scratch_bytes(&self, _shapes: &StepShapes<'_>) -> usize {
        0
    }

    /// The inputs whose memory the first output may take over, for these shapes.
    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        SmallVec::new()
    }

    /// How many of the first inputs it reads, at most; all others were packed.
    fn inputs_read(&self) -> usize {
        usize::MAX
    }

    /// An estimate of the time it takes on one thread, in nanoseconds.
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum::<u64>() / 4
    }

    /// Computes the outputs.
    fn run(&self, io: StepIo<'_, '_>) -> OpResult;
}

/// A kernel for a layer.
pub(crate) struct Claim {
    /// The kernel.
    pub kernel: Box<dyn Kernel>,
    /// Inputs that were packed, so that their tensors are not needed any more.
    pub packed_inputs: SmallVec<[usize; 2]>,
}

/// What a claim sees of a layer.
pub(crate) struct ClaimContext<'a> {
    /// The layer.
    pub node: &'a Node,
    /// What is known of the inputs for all shapes that the model may get.
    pub inputs: &'a [&'a ValueFacts],
    /// What is known of the outputs.
    pub outputs: &'a [ValueFacts],
    /// The tensor of an input that depends on constants only.
    pub constant: &'a mut dyn FnMut(usize) -> Option<Tensor>,
    /// The stored form of an input that is a compressed constant.
    pub stored: &'a mut dyn FnMut(usize) -> Option<Stored>,
    /// Packed constants that several layers share.
    pub packed: &'a mut PackStore,
    /// Whether the plan has put the layer on blocks of channels.
    pub is_blocked: bool,
    /// The layout of the outputs.
    pub output_layout: Layout,
    /// The number of the graph.
    pub graph: usize,
    /// Whether a layer of the graph computes its value (it is no Const).
    pub computed: &'a [bool],
    /// The precision of products, convolutions and attention.
    pub precision: InferencePrecision,
    /// The most neighbouring values that are quantised together in products with compressed constants; 0 if none are.
    pub dynamic_group: usize,
}

impl ClaimContext<'_> {
    /// What tells the constant `tensor` at input `port` from all others.
    pub fn key(&self, port: usize, tensor: &Tensor) -> PackKey {
        let (address, length) = tensor.identity();
        match self.node.inputs.get(port) {
            Some(source) if self.computed.get(source.node.index()).copied().unwrap_or(true) => {
                PackKey::Value(self.graph, *source)
            }
            _ => PackKey::Bytes(address, length),
        }
    }
}

/// Packed constants, once per source and format.
#[derive(Default)]
pub(crate) struct PackStore {
    entries: HashMap<(PackKey, String), Arc<dyn std::any::Any + Send + Sync>>,
    graphs: usize,
}

/// What tells one constant from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PackKey {
    /// The bytes of a Const: address and length. They live as long as the model.
    Bytes(usize, usize),
    /// A value that is computed from constants: the number of the graph, and the value.
    Value(usize, Source),
}

impl PackStore {
    /// The number of a graph that is compiled now.
    pub fn new_graph(&mut self) -> usize {
        self.graphs += 1;
        self.graphs
    }

    /// The packed form of a constant, made by `pack` if it is not there yet. `format` tells everything besides the
    /// values that the packed form depends on.
    pub fn get<T: Send + Sync + 'static>(
        &mut self,
        key: PackKey,
        format: String,
        pack: impl FnOnce() -> Option<T>,
    ) -> Option<Arc<T>> {
        let key = (key, format);
        if let Some(found) = self.entries.get(&key).and_then(|entry| Arc::clone(entry).downcast::<T>().ok()) {
            return Some(found);
        }
        let packed = Arc::new(pack()?);
        self.entries.insert(key, packed.clone());
        Some(packed)
    }
}

/// All claims, in the order in which they are asked; what a layer is decides which of them can answer at all.
static CLAIMS: &[fn(&mut ClaimContext<'_>) -> Option<Claim>] = &[
    blocked::claim_reorder,
    quantized::claim,
    quantized::claim_encode,
    quantized::claim_decode,
    convolution::claim,
    matmul::claim,
    einsum::claim,
    integer::claim,
    integer_codes::claim,
    stored_gather::claim,
    small_chain::claim,
    chain::claim,
    unary::claim,
    mapped::claim,
    fake_quantize::claim,
    binary::claim,
    pooling::claim,
    adaptive::claim,
    softmax::claim,
    reduce::claim,
    cumulative::claim,
    transposed::claim,
    normalization::claim,
    movement::claim,
    scatter::claim,
    indexed::claim,
    convert::claim,
    embedding::claim,
    random::claim,
    select::claim,
    attention::claim,
    rotary::claim,
    views::claim,
    recurrent::claim,
    recurrent::claim_cell,
    top_k::claim,
    color::claim,
    region_yolo::claim,
    deformable::claim,
    fourier::claim,
    position_sensitive::claim,
    interpolate::claim,
    regions::claim_plain,
];

/// Offers a kernel for a layer.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    if context.is_blocked {
        return blocked::claim(context);
    }
    CLAIMS.iter().find_map(|claim| claim(context))
}
