//! Reference evaluation: what an operation reads and writes.

use ovir_tensor::{ElementType, NativeElement, Shape, SmallVec, Tensor, TensorView, TensorViewMut};

use crate::{Blame, Body, Environment, OpError, OpResult, Operation, spread};

/// Where an output goes.
pub enum OutputSlot<'a> {
    /// A buffer of the caller for an output whose shape is known.
    Given(TensorViewMut<'a>),
    /// Memory is to be had when the shape is known.
    Needed(ElementType),
    /// The same, and here is a tensor that nobody reads any more, whose memory may suffice.
    Reserve(ElementType, Tensor),
    /// Memory that was had.
    Produced(Tensor),
}

/// Where the outputs of a layer go; implemented by whoever runs the operation.
pub trait Outputs {
    /// The number of outputs.
    fn count(&self) -> usize;

    /// The element type of output `port`.
    fn element_type(&self, port: usize) -> ElementType;

    /// Output `port`, ready to be written with the given shape.
    ///
    /// # Errors
    /// When the shape is not the one that inference promised, or memory cannot be had.
    fn ready(&mut self, port: usize, shape: &Shape, environment: &Environment) -> OpResult<TensorViewMut<'_>>;

    /// All outputs, ready to be written with the given shapes.
    ///
    /// # Errors
    /// As [`Outputs::ready`].
    fn all_ready(&mut self, shapes: &[Shape], environment: &Environment) -> OpResult<SmallVec<[TensorViewMut<'_>; 4]>>;

    /// Takes a finished tensor as output `port`.
    ///
    /// # Errors
    /// When shape or type are not what inference promised.
    fn set(&mut self, port: usize, tensor: Tensor, environment: &Environment) -> OpResult;
}

/// Outputs in a list of slots.
pub struct OutputSlots<'s, 'o>(pub &'s mut [OutputSlot<'o>]);

impl Outputs for OutputSlots<'_, '_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn element_type(&self, port: usize) -> ElementType {
        match self.0.get(port) {
            Some(OutputSlot::Given(view)) => view.element_type(),
            Some(OutputSlot::Needed(element_type) | OutputSlot::Reserve(element_type, _)) => *element_type,
            Some(OutputSlot::Produced(tensor)) => tensor.element_type(),
            None => ElementType::Dynamic,
        }
    }

    fn ready(&mut self, port: usize, shape: &Shape, environment: &Environment) -> OpResult<TensorViewMut<'_>> {
        let slot = self.0.get_mut(port).ok_or_else(|| missing("output", port))?;
        ready(slot, port, shape, environment)
    }

    fn all_ready(&mut self, shapes: &[Shape], environment: &Environment) -> OpResult<SmallVec<[TensorViewMut<'_>; 4]>> {
        let slots = self.0.iter_mut().zip(shapes).enumerate();
        slots.map(|(port, (slot, shape))| ready(slot, port, shape, environment)).collect()
    }

    fn set(&mut self, port: usize, tensor: Tensor, environment: &Environment) -> OpResult {
        let Some(slot) = self.0.get_mut(port) else {
            return Ok(());
        };
        let OutputSlot::Given(view) = slot else {
            *slot = OutputSlot::Produced(tensor);
            return Ok(());
        };
        if view.element_type() != tensor.element_type() {
            return Err(promised(port, view.element_type(), view.shape(), tensor.element_type(), tensor.shape()));
        }
        let mut target = ready(slot, port, tensor.shape(), environment)?;
        if let (Some(target), Some(source)) = (target.strings_mut(), tensor.strings()) {
            target.clone_from_slice(source);
            return Ok(());
        }
        target.bytes_mut().copy_from_slice(tensor.bytes());
        Ok(())
    }
}

/// What `evaluate` works with.
pub struct EvaluateContext<'a> {
    pub(crate) inputs: &'a [TensorView<'a>],
    pub(crate) outputs: &'a mut (dyn Outputs + 'a),
    pub(crate) bodies: &'a [&'a dyn Body],
    pub(crate) environment: &'a mut Environment,
    pub(crate) in_place: bool,
}

impl<'a> EvaluateContext<'a> {
    /// A context. With `in_place`, the first output holds the data of the operation's in-place input already, and the
    /// view of that input has the right type and shape but no bytes.
    pub fn new(
        inputs: &'a [TensorView<'a>],
        outputs: &'a mut (dyn Outputs + 'a),
        bodies: &'a [&'a dyn Body],
        environment: &'a mut Environment,
        in_place: bool,
    ) -> EvaluateContext<'a> {
        EvaluateContext { inputs, outputs, bodies, environment, in_place }
    }

    /// Evaluates an operation. Elements that share bytes get a byte each, unless the operation
    /// [takes them packed](Operation::takes_packed): whoever runs operations calls this, not [`Operation::evaluate`].
    ///
    /// # Errors
    /// Those of the operation, and when memory cannot be had.
    pub fn run(&mut self, operation: &dyn Operation) -> OpResult {
        let has_packed = self.inputs.iter().any(|view| spread::is_packed(view.element_type()));
        if !has_packed || operation.is_reshape() || operation.takes_packed() {
            return operation.evaluate(self);
        }
        spread::evaluate(operation, self)
    }

    /// The number of inputs.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs.
    pub fn output_count(&self) -> usize {
        self.outputs.count()
    }

    /// Input `port`.
    ///
    /// # Errors
    /// When the layer has no such input.
    pub fn input(&self, port: usize) -> OpResult<TensorView<'a>> {
        self.inputs.get(port).copied().ok_or_else(|| {
            OpError::new(ovir_diagnostics::Code::PortCount, Blame::Node, format!("input {port} is missing"))
        })
    }

    /// The elements of input `port`.
    ///
    /// # Errors
    /// When there is no such input, or it has another element type.
    pub fn slice<T: NativeElement>(&self, port: usize) -> OpResult<&'a [T]> {
        Ok(self.input(port)?.slice::<T>()?)
    }

    /// The integers of input `port`, whatever integer type it has.
    ///
    /// # Errors
    /// When the input is not of an integer type or holds a number beyond i64.
    pub fn integers(&self, port: usize) -> OpResult<SmallVec<[i64; 8]>> {
        let view = self.input(port)?;
        crate::infer::integers_of_view(view).ok_or_else(|| {
            let message = format!("{} values that fit 64 bits are expected here", view.element_type());
            OpError::value(Blame::Input(port), message)
        })
    }

    /// The single integer of input `port`.
    ///
    /// # Errors
    /// When it has another number of elements than one.
    pub fn integer(&self, port: usize) -> OpResult<i64> {
        match self.integers(port)?.as_slice() {
            [value] => Ok(*value),
            values => {
                let message = format!("one element is expected, not {}", values.len());
                Err(OpError::shape(Blame::Input(port), message))
            }
        }
    }

    /// The element type that output `port` has.
    pub fn output_element_type(&self, port: usize) -> ElementType {
        self.outputs.element_type(port)
    }

    /// Makes output `port` of the given shape ready and borrows it for writing. What it holds is unspecified, unless
    /// the operation works in place.
    ///
    /// # Errors
    /// When the shape is not the one that inference promised, or memory cannot be had.
    pub fn output(&mut self, port: usize, shape: &Shape) -> OpResult<TensorViewMut<'_>> {
        self.outputs.ready(port, shape, self.environment)
    }

    /// As [`EvaluateContext::output`], as elements.
    ///
    /// # Errors
    /// As [`EvaluateContext::output`], and when the output has another element type.
    pub fn output_slice<T: NativeElement>(&mut self, port: usize, shape: &Shape) -> OpResult<&mut [T]> {
        Ok(self.output(port, shape)?.into_slice::<T>()?)
    }

    /// Makes all outputs ready at once, one shape each.
    ///
    /// # Errors
    /// As [`EvaluateContext::output`].
    pub fn all_outputs(&mut self, shapes: &[Shape]) -> OpResult<SmallVec<[TensorViewMut<'_>; 4]>> {
        let count = self.outputs.count();
        if shapes.len() < count {
            let message = format!("{} outputs are declared, the operation yields {}", count, shapes.len());
            return Err(OpError::new(ovir_diagnostics::Code::PortCount, Blame::Node, message));
        }
        self.outputs.all_ready(shapes, self.environment)
    }

    /// Gives a finished tensor as output `port`; it is copied into the caller's buffer where one was given.
    ///
    /// # Errors
    /// When shape or type are not what inference promised.
    pub fn set_output(&mut self, port: usize, tensor: Tensor) -> OpResult {
        self.outputs.set(port, tensor, self.environment)
    }

    /// Whether the first output already holds the data of the operation's in-place input.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// The bodies of the layer and the surroundings.
    pub fn bodies(&mut self) -> (&'a [&'a dyn Body], &mut Environment) {
        (self.bodies, self.environment)
    }

    /// The surroundings: limits, random streams.
    pub fn environment(&mut self) -> &mut Environment {
        self.environment
    }
}

fn ready<'s>(
    slot: &'s mut OutputSlot<'_>,
    port: usize,
    shape: &Shape,
    environment: &Environment,
) -> OpResult<TensorViewMut<'s>> {
    match slot {
        OutputSlot::Needed(element_type) => {
            *slot = OutputSlot::Produced(environment.allocate(*element_type, shape)?);
        }
        OutputSlot::Reserve(element_type, _) => {
            let element_type = *element_type;
            let OutputSlot::Reserve(_, tensor) = std::mem::replace(slot, OutputSlot::Needed(element_type)) else {
                return Err(OpError::shape(Blame::Output(port), "the output has no memory"));
            };
            let mut tensor = Some(tensor);
            Tensor::prepare(&mut tensor, element_type, shape)?;
            if let Some(mut tensor) = tensor {
                // As of memory that is new.
                tensor.bytes_mut()?.fill(0);
                *slot = OutputSlot::Produced(tensor);
            }
        }
        OutputSlot::Given(_) | OutputSlot::Produced(_) => {}
    }
    match slot {
        OutputSlot::Given(view) => {
            if view.shape() != shape {
                let element_type = view.element_type();
                return Err(promised(port, element_type, view.shape(), element_type, shape));
            }
            Ok(view.reborrow())
        }
        OutputSlot::Produced(tensor) => Ok(tensor.view_mut()?),
        OutputSlot::Needed(_) | OutputSlot::Reserve(..) => {
            Err(OpError::shape(Blame::Output(port), "the output has no memory"))
        }
    }
}

fn promised(
    port: usize,
    expected_type: ElementType,
    expected: &Shape,
    actual_type: ElementType,
    actual: &Shape,
) -> OpError {
    let message =
        format!("the operation yields {actual_type}{actual} where inference promised {expected_type}{expected}");
    OpError::shape(Blame::Output(port), message)
}

fn missing(what: &str, port: usize) -> OpError {
    OpError::new(ovir_diagnostics::Code::PortCount, Blame::Node, format!("{what} {port} is missing"))
}
