//! Shape inference: what an operation sees of its inputs and says of its outputs.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU32;
use std::sync::Arc;

use ovir_tensor::{
    Bounds, Dim, ElementClass, ElementType, MAX_BOUNDS_ELEMENTS, PartialShape, SmallVec, Symbol, Tensor, Value,
};

use crate::{Blame, Body, OpError, OpResult};

/// What is known of a value before it is computed. Of most values no more is known than type and shape, so that the rest
/// lies elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueFacts {
    /// The element type.
    pub element_type: ElementType,
    /// The shape.
    pub shape: PartialShape,
    /// The elements, known or bounded, if the tensor is a small one of integers.
    pub bounds: Option<Arc<Bounds>>,
    /// The tensor itself, if it is known.
    pub constant: Option<Arc<Tensor>>,
}

impl Default for ValueFacts {
    fn default() -> ValueFacts {
        ValueFacts::new(ElementType::Dynamic, PartialShape::DYNAMIC)
    }
}

impl ValueFacts {
    /// A value of which only element type and shape are known.
    pub fn new(element_type: ElementType, shape: PartialShape) -> ValueFacts {
        ValueFacts { element_type, shape, bounds: None, constant: None }
    }

    /// A known tensor.
    pub fn of_constant(tensor: Tensor) -> ValueFacts {
        ValueFacts {
            element_type: tensor.element_type(),
            shape: PartialShape::from(tensor.shape()),
            bounds: bounds_of(&tensor).map(Arc::new),
            constant: Some(Arc::new(tensor)),
        }
    }

    /// The integers of the value, if all are known.
    pub fn integers(&self) -> Option<SmallVec<[i64; 8]>> {
        if let Some(bounds) = &self.bounds {
            return bounds.known();
        }
        integers_of(self.constant.as_ref()?)
    }
}

/// Gives out symbols for unknown dimensions.
#[derive(Debug, Clone, Default)]
pub struct SymbolSource {
    last: u32,
    /// The symbols of numbers of windows.
    windows: HashMap<(Symbol, i64, i64), Symbol>,
}

impl SymbolSource {
    /// A symbol that was not given out before.
    pub fn fresh(&mut self) -> Option<Symbol> {
        self.last = self.last.checked_add(1)?;
        NonZeroU32::new(self.last).map(Symbol)
    }

    /// The symbol of `floor((n + offset) / stride) + 1` for the number `n` that `of` stands for: the same one each time, so
    /// that branches with equal windows are seen to have equal sizes.
    pub fn windows(&mut self, of: Symbol, offset: i64, stride: i64) -> Option<Symbol> {
        match self.windows.entry((of, offset, stride)) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(place) => {
                self.last = self.last.checked_add(1)?;
                NonZeroU32::new(self.last).map(|number| *place.insert(Symbol(number)))
            }
        }
    }
}

/// What `infer` works with.
pub struct InferContext<'a> {
    inputs: &'a [&'a ValueFacts],
    outputs: &'a mut [ValueFacts],
    problems: &'a mut Vec<OpError>,
    symbols: &'a mut SymbolSource,
    bodies: &'a [&'a dyn Body],
    read: Cell<ReadValues>,
}

/// The inputs of which a rule has looked at more than type and shape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadValues(u64);

impl ReadValues {
    /// Whether it has looked at input `port`.
    pub fn contains(self, port: usize) -> bool {
        port >= 63 && self.0 >> 63 == 1 || port < 63 && self.0 >> port & 1 == 1
    }

    fn with(self, port: usize) -> ReadValues {
        ReadValues(self.0 | 1 << port.min(63))
    }
}

impl<'a> InferContext<'a> {
    /// A context. `outputs` are overwritten; their number is that of the layer's output ports.
    pub fn new(
        inputs: &'a [&'a ValueFacts],
        outputs: &'a mut [ValueFacts],
        problems: &'a mut Vec<OpError>,
        symbols: &'a mut SymbolSource,
        bodies: &'a [&'a dyn Body],
    ) -> InferContext<'a> {
        for output in outputs.iter_mut() {
            *output = ValueFacts::default();
        }
        InferContext { inputs, outputs, problems, symbols, bodies, read: Cell::default() }
    }

    /// The number of inputs.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs.
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// All that is known of input `port`.
    ///
    /// # Errors
    /// When the layer has no such input.
    pub fn input(&self, port: usize) -> OpResult<&'a ValueFacts> {
        self.note_read(port);
        self.facts(port)
    }

    /// The inputs whose values were looked at so far: with the same ones there, and the same types and shapes everywhere, the
    /// rule says the same again.
    pub fn read_values(&self) -> ReadValues {
        self.read.get()
    }

    /// As [`InferContext::input`], for one who says itself by [`InferContext::note_read`] what it has looked at.
    ///
    /// # Errors
    /// When the layer has no such input.
    pub(crate) fn facts(&self, port: usize) -> OpResult<&'a ValueFacts> {
        self.inputs.get(port).copied().ok_or_else(|| missing_input(port))
    }

    /// Notes that more than type and shape of input `port` was looked at.
    pub(crate) fn note_read(&self, port: usize) {
        self.read.set(self.read.get().with(port));
    }

    /// The element type of input `port`, dynamic if there is no such input.
    pub fn element_type(&self, port: usize) -> ElementType {
        self.inputs.get(port).map_or(ElementType::Dynamic, |i| i.element_type)
    }

    /// The shape of input `port`, dynamic if there is no such input.
    pub fn shape(&self, port: usize) -> &'a PartialShape {
        static DYNAMIC: PartialShape = PartialShape::DYNAMIC;
        self.inputs.get(port).map_or(&DYNAMIC, |i| &i.shape)
    }

    /// The tensor of input `port`, if it is known.
    pub fn constant(&self, port: usize) -> Option<&'a Tensor> {
        self.note_read(port);
        self.inputs.get(port)?.constant.as_deref()
    }

    /// The known or bounded elements of input `port`, if it is a small tensor of integers.
    pub fn bounds(&self, port: usize) -> Option<&'a Bounds> {
        let facts = self.inputs.get(port)?;
        // Other types never have bounds.
        if !facts.element_type.is_float() {
            self.note_read(port);
        }
        facts.bounds.as_deref()
    }

    /// The integers of input `port`, if all are known.
    pub fn integers(&self, port: usize) -> Option<SmallVec<[i64; 8]>> {
        let facts = self.inputs.get(port)?;
        if !facts.element_type.is_float() {
            self.note_read(port);
        }
        facts.integers()
    }

    /// The single known integer of input `port` (a scalar or a tensor of one element).
    pub fn integer(&self, port: usize) -> Option<i64> {
        match self.integers(port)?.as_slice() {
            [value] => Some(*value),
            _ => None,
        }
    }

    /// The bodies of the layer.
    pub fn bodies(&self) -> &'a [&'a dyn Body] {
        self.bodies
    }

    /// Says element type and shape of output `port`. An output that the layer does not declare is ignored.
    pub fn set_output(&mut self, port: usize, element_type: ElementType, shape: PartialShape) {
        if let Some(output) = self.outputs.get_mut(port) {
            *output = ValueFacts::new(element_type, shape);
        }
    }

    /// Says everything of output `port`.
    pub fn set_facts(&mut self, port: usize, facts: ValueFacts) {
        if let Some(output) = self.outputs.get_mut(port) {
            *output = facts;
        }
    }

    /// Adds known or bounded elements to output `port`; call it after [`InferContext::set_output`]. Bounds that are
    /// too many, or of another shape than the output, are dropped.
    ///
    /// A value that the element type cannot hold wraps at run time, so it becomes unknown.
    pub fn set_bounds(&mut self, port: usize, mut bounds: Bounds) {
        let Some(output) = self.outputs.get_mut(port) else { return };
        let (low, high) = integer_range(output.element_type);
        for value in &mut bounds.values {
            let fits = |bound: i64| bound == i64::MIN || bound == i64::MAX || (low <= bound && bound <= high);
            if !fits(value.min) || !fits(value.max) {
                *value = Value::UNKNOWN;
            }
        }
        let fits = bounds.values.len() <= MAX_BOUNDS_ELEMENTS
            && bounds.shape.checked_elements() == Some(bounds.values.len())
            && output.shape.contains(&bounds.shape);
        if fits {
            output.bounds = Some(Arc::new(bounds));
        }
    }

    /// Where symbols of unknown dimensions come from.
    pub fn symbols(&mut self) -> &mut SymbolSource {
        self.symbols
    }

    /// A dimension in `min..=max` whose size is unknown but has an identity.
    pub fn new_dim(&mut self, min: i64, max: i64) -> Dim {
        Dim::interval(min, max).with_symbol(self.symbols.fresh())
    }

    /// Reports a violation and goes on.
    pub fn report(&mut self, error: OpError) {
        self.problems.push(error);
    }

    /// Checks that the element type of input `port` belongs to a class.
    ///
    /// # Errors
    /// A type mismatch that names the type and what is allowed.
    pub fn require_class(&self, port: usize, class: ElementClass) -> OpResult<ElementType> {
        let element_type = self.element_type(port);
        if element_type.is(class) {
            return Ok(element_type);
        }
        let allowed = match class {
            ElementClass::Any => "any type",
            ElementClass::Float => "a floating-point type (f16, bf16, f32, f64)",
            ElementClass::Integer => "an integer type",
            ElementClass::SignedInteger => "a signed integer type",
            ElementClass::Numeric => "a numeric type (integer or floating-point)",
            ElementClass::Native => "a numeric type or boolean",
            ElementClass::Boolean => "boolean",
            ElementClass::Index => "i32 or i64",
        };
        Err(OpError::element_type(Blame::Input(port), format!("element type {element_type} must be {allowed}")))
    }

    /// Checks that inputs have one element type in common, and returns it.
    ///
    /// # Errors
    /// A type mismatch that names both types.
    pub fn require_same_type(&self, ports: &[usize]) -> OpResult<ElementType> {
        let mut merged = ElementType::Dynamic;
        let mut known_port = 0;
        for &port in ports {
            let element_type = self.element_type(port);
            merged = merged.merge(element_type).ok_or_else(|| {
                let message = format!(
                    "element type {element_type} differs from {merged} of input {known_port}; they must be equal"
                );
                OpError::element_type(Blame::Input(port), message)
            })?;
            if element_type.is_known() {
                known_port = port;
            }
        }
        Ok(merged)
    }

    /// Checks the rank of input `port` where it is known.
    ///
    /// # Errors
    /// A shape mismatch that names the shape and the allowed ranks.
    pub fn require_rank(&self, port: usize, ranks: std::ops::RangeInclusive<usize>) -> OpResult<Option<usize>> {
        let shape = self.shape(port);
        let Some(rank) = shape.rank() else { return Ok(None) };
        if ranks.contains(&rank) {
            return Ok(Some(rank));
        }
        let allowed = match (*ranks.start(), *ranks.end()) {
            (a, b) if a == b => format!("{a}"),
            (a, usize::MAX) => format!("at least {a}"),
            (a, b) => format!("{a} to {b}"),
        };
        Err(OpError::shape(Blame::Input(port), format!("shape {shape} has rank {rank}; it must be {allowed}")))
    }

    /// Checks that input `port` is a scalar or has exactly one element.
    ///
    /// # Errors
    /// A shape mismatch that names the shape.
    pub fn require_one_element(&self, port: usize) -> OpResult {
        let shape = self.shape(port);
        let fits = match shape.dims() {
            None => true,
            Some(dims) => dims.len() <= 1 && dims.iter().all(|d| d.contains(1)),
        };
        if fits {
            return Ok(());
        }
        let message = format!("shape {shape} must be a scalar or a tensor of one element");
        Err(OpError::shape(Blame::Input(port), message))
    }
}

/// An axis counted from the front: `axis` in `[-rank, rank - 1]`.
///
/// # Errors
/// A value error blaming `blame` that names the axis and its range.
pub(crate) fn normalize_axis(axis: i64, rank: usize, blame: Blame) -> OpResult<usize> {
    let signed = rank as i64;
    if axis >= -signed && axis < signed {
        return Ok(if axis < 0 { axis + signed } else { axis } as usize);
    }
    let message = match rank {
        0 => format!("axis {axis} is out of range: a scalar has no axes"),
        _ => format!("axis {axis} is out of range [{}, {}] for a tensor of rank {rank}", -signed, signed - 1),
    };
    Err(OpError::value(blame, message))
}

/// The integers of a tensor of an integer type (or boolean) that is small enough to be followed.
pub(crate) fn integers_of(tensor: &Tensor) -> Option<SmallVec<[i64; 8]>> {
    if tensor.elements() > MAX_BOUNDS_ELEMENTS {
        return None;
    }
    integers_of_view(tensor.view())
}

/// The integers of a view of an integer type, of any length. u64 beyond i64 gives `None`.
pub fn integers_of_view(view: ovir_tensor::TensorView<'_>) -> Option<SmallVec<[i64; 8]>> {
    let bytes = view.bytes();
    macro_rules! read {
        ($($variant:ident => $rust:ty),*) => {
            match view.element_type() {
                $(ElementType::$variant => {
                    const WIDTH: usize = size_of::<$rust>();
                    bytes.chunks_exact(WIDTH).map(|c| {
                        let mut raw = [0u8; WIDTH];
                        raw.copy_from_slice(c);
                        i64::try_from(<$rust>::from_le_bytes(raw)).ok()
                    }).collect()
                })*
                _ => None,
            }
        };
    }
    read!(I64 => i64, I32 => i32, I16 => i16, I8 => i8, U64 => u64, U32 => u32, U16 => u16, U8 => u8, Boolean => u8)
}

/// The integers of the input that is `at` in a list of those behind input 0.
pub(crate) fn integers_at(parameters: &[ovir_tensor::TensorView<'_>], at: usize) -> OpResult<SmallVec<[i64; 8]>> {
    let read = parameters.get(at).copied().and_then(integers_of_view);
    read.ok_or_else(|| OpError::value(Blame::Input(at + 1), "must hold integers that i64 holds"))
}

/// The numbers that an integer type can hold, as far as i64 can.
pub(crate) fn integer_range(element_type: ElementType) -> (i64, i64) {
    match element_type {
        ElementType::Boolean => (0, 1),
        ElementType::U8 => (0, i64::from(u8::MAX)),
        ElementType::U16 => (0, i64::from(u16::MAX)),
        ElementType::U32 => (0, i64::from(u32::MAX)),
        ElementType::U64 => (0, i64::MAX),
        ElementType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        ElementType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        ElementType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

fn bounds_of(tensor: &Tensor) -> Option<Bounds> {
    let values = integers_of(tensor)?.into_iter().map(Value::known).collect();
    Some(Bounds { shape: tensor.shape().clone(), values })
}

fn missing_input(port: usize) -> OpError {
    OpError::new(ovir_diagnostics::Code::PortCount, Blame::Node, format!("input {port} is missing"))
}
