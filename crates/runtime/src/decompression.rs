//! Constants that a model stores compressed: codes, a zero point and a scale, or half precision numbers.
//!
//! Exporters write `Const(codes) → Convert → Subtract(zero point) → Multiply(scale) → Reshape → Convert`, each step but
//! the first Convert optional. A kernel that reads the codes themselves spares the memory of the f32 values.

use ovir_graph::{Inference, Model, Source};
use ovir_kernels::gemm::Codes;
use ovir_optimize::{FEWEST_BYTE_ELEMENTS, FEWEST_SCALED_ELEMENTS, FEWEST_STORED_ELEMENTS};
use ovir_tensor::{ElementType, Shape, SmallVec, Tensor, packed};

use crate::RunError;

/// Layers between the codes and the value; longer chains are something else.
const MOST_LAYERS: usize = 16;

/// A constant in its stored form.
pub(crate) struct Stored {
    /// The codes.
    pub codes: Tensor,
    /// The type that the codes are converted to first, which rounds.
    first_type: ElementType,
    /// The shape of the value.
    pub shape: Shape,
    /// Multiplied with what the codes say, less the zero point.
    pub scale: Option<Parameter>,
    /// Subtracted from what the codes say.
    pub zero: Option<Parameter>,
    /// The shape in which scale and zero point are broadcast.
    grouped: Shape,
}

/// A scale or a zero point: f32 values that are broadcast over the codes.
pub(crate) struct Parameter {
    values: Vec<f32>,
    /// Elements from one index of each axis of the codes to the next; 0 where the parameter is broadcast.
    strides: SmallVec<[usize; 8]>,
}

/// A stored matrix as the kernels of products take it.
pub(crate) struct StoredMatrix {
    /// Rows that share parameters.
    pub group: usize,
    /// Scales, `[k / group, n]`.
    pub scales: Option<Vec<f32>>,
    /// Zero points, `[k / group, n]`.
    pub zeros: Option<Vec<f32>>,
}

/// Codes in one of the forms that kernels read.
pub(crate) enum StoredCodes {
    /// Unsigned nibbles.
    U4(Tensor),
    /// Signed nibbles.
    I4(Tensor),
    /// Nibbles that name entries of a table.
    Table(Tensor, [f32; 16]),
    /// Unsigned bytes.
    U8(Tensor),
    /// Signed bytes.
    I8(Tensor),
    /// Half precision.
    F16(Tensor),
    /// Brain floats.
    Bf16(Tensor),
}

/// Finds the stored form of a value that depends on constants only. `evaluate` gives the values of scales and zero
/// points.
pub(crate) fn stored(
    model: &Model,
    inference: &Inference,
    source: Source,
    evaluate: &mut dyn FnMut(Source) -> Result<Tensor, RunError>,
) -> Option<Stored> {
    let shape = |source: Source| inference.get(source).shape.to_shape();
    let is_f32 = |source: Source| inference.get(source).element_type == ElementType::F32;
    if !is_f32(source) {
        return None;
    }
    let (mut scale, mut zero, mut grouped) = (None, None, None);
    let mut at = source;
    for _ in 0..MOST_LAYERS {
        let node = model.node(at.node);
        let input = *node.inputs.first()?;
        if node.is("Convert") {
            if let Some(codes) = model.node(input.node).tensor() {
                let grouped = grouped.unwrap_or_else(|| codes.shape().clone());
                let whole = shape(source)?;
                let fits = grouped.elements() == codes.elements() && whole.elements() == codes.elements();
                let parameter =
                    |value: Option<Source>, evaluate: &mut dyn FnMut(Source) -> Result<Tensor, RunError>| {
                        value
                            .map(|value| Parameter::new(&evaluate(value).ok()?, &grouped))
                            .map_or(Some(None), |p| Some(Some(p?)))
                    };
                let first_type = inference.get(at).element_type;
                let is_compressed =
                    is_compressed(codes.element_type()) && keeps_values(codes.element_type(), first_type);
                (fits && is_compressed && codes.elements() >= FEWEST_BYTE_ELEMENTS).then_some(())?;
                let (scale, zero) = (parameter(scale, evaluate)?, parameter(zero, evaluate)?);
                return Some(Stored { codes: codes.clone(), first_type, shape: whole, scale, zero, grouped });
            }
            // A Convert between floats in the middle of the chain: halves are computed in f32 anyway.
            inference.get(input).element_type.is_float().then_some(())?;
            at = input;
        } else if node.operation.is_reshape() {
            at = input;
        } else if node.is("Multiply") && scale.is_none() && zero.is_none() {
            scale = Some(*node.inputs.get(1)?);
            grouped = Some(shape(at)?);
            at = input;
        } else if node.is("Subtract") && zero.is_none() {
            let here = shape(at)?;
            if grouped.as_ref().is_some_and(|grouped| *grouped != here) {
                return None;
            }
            zero = Some(*node.inputs.get(1)?);
            grouped = Some(here);
            at = input;
        } else {
            return None;
        }
    }
    None
}

fn is_compressed(element_type: ElementType) -> bool {
    use ElementType as E;
    matches!(
        element_type,
        E::U1 | E::U2 | E::U3 | E::U4 | E::U6 | E::U8 | E::I4 | E::I8 | E::Nf4 | E::F4e2m1 | E::F8e4m3 | E::F8e5m2
    ) || matches!(element_type, E::F16 | E::Bf16)
}

/// Whether a Convert to `first_type` keeps all values of the codes, or rounds a table whose entries can be rounded here.
fn keeps_values(codes: ElementType, first_type: ElementType) -> bool {
    let is_half = |t: ElementType| matches!(t, ElementType::F16 | ElementType::Bf16);
    first_type == ElementType::F32 || is_half(first_type) && (!is_half(codes) || codes == first_type)
}

impl StoredCodes {
    /// As the kernels take them.
    pub fn view(&self) -> Codes<'_> {
        match self {
            StoredCodes::U4(tensor) => Codes::U4(tensor.bytes()),
            StoredCodes::I4(tensor) => Codes::I4(tensor.bytes()),
            StoredCodes::Table(tensor, table) => Codes::Table(tensor.bytes(), table),
            StoredCodes::U8(tensor) => Codes::U8(tensor.bytes()),
            StoredCodes::I8(tensor) => Codes::I8(tensor.bytes()),
            StoredCodes::F16(tensor) => Codes::F16(tensor.bytes()),
            StoredCodes::Bf16(tensor) => Codes::Bf16(tensor.bytes()),
        }
    }
}

impl Parameter {
    fn new(tensor: &Tensor, grouped: &Shape) -> Option<Parameter> {
        let shape = tensor.shape();
        let skipped = grouped.rank().checked_sub(shape.rank())?;
        let mut strides: SmallVec<[usize; 8]> = SmallVec::from_elem(0, grouped.rank());
        let mut stride = 1;
        for (axis, size) in shape.iter().enumerate().rev() {
            if *size != 1 {
                (*size == grouped[skipped + axis]).then_some(())?;
                strides[skipped + axis] = stride;
            }
            stride *= size;
        }
        // Constants lie anywhere in the file: codes of an odd number of bytes may come before them.
        Some(Parameter { values: tensor.aligned().ok()?.slice::<f32>().ok()?.to_vec(), strides })
    }

    fn at(&self, shape: &Shape, element: usize) -> f32 {
        let (mut rest, mut place) = (element, 0);
        for (size, stride) in shape.iter().zip(&self.strides).rev() {
            place += rest % size * stride;
            rest /= size;
        }
        self.values.get(place).copied().unwrap_or(0.0)
    }
}

impl Stored {
    /// Whether so many codes are stored that it pays to read them by themselves, for the memory that f32 would take.
    pub fn is_large(&self) -> bool {
        self.codes.shape().elements() >= FEWEST_STORED_ELEMENTS
    }

    /// The codes in a form that kernels read; types that have none are widened as little as possible.
    pub fn codes(&self) -> Option<StoredCodes> {
        use ElementType as E;
        let codes = self.codes.clone();
        Some(match self.codes.element_type() {
            E::U4 => StoredCodes::U4(codes),
            E::I4 => StoredCodes::I4(codes),
            table @ (E::Nf4 | E::F4e2m1) => {
                let entry = |code: usize| packed::decode(table, code as u8);
                let rounded = |code: usize| match self.first_type {
                    E::F16 => half::f16::from_f32(entry(code)).to_f32(),
                    E::Bf16 => half::bf16::from_f32(entry(code)).to_f32(),
                    _ => entry(code),
                };
                StoredCodes::Table(codes, std::array::from_fn(rounded))
            }
            E::U8 => StoredCodes::U8(codes),
            E::I8 => StoredCodes::I8(codes),
            E::F16 => StoredCodes::F16(codes),
            E::Bf16 => StoredCodes::Bf16(codes),
            E::U1 | E::U2 | E::U3 | E::U6 => StoredCodes::U8(packed::unpack(&codes).ok()?),
            // Every number of these formats is a half precision number too.
            format @ (E::F8e4m3 | E::F8e5m2) => {
                let halves: Vec<half::f16> =
                    codes.bytes().iter().map(|code| half::f16::from_f32(packed::decode(format, *code))).collect();
                StoredCodes::F16(Tensor::from_slice(&halves, self.codes.shape().clone()).ok()?)
            }
            _ => return None,
        })
    }

    /// Scales and zero points of the value as a matrix of `k` rows and `n` columns, which lie the other way round in
    /// memory where `transposed`. `None` if they change along a row of codes too often to be worth it.
    pub fn matrix(&self, k: usize, n: usize, transposed: bool) -> Option<StoredMatrix> {
        if self.scale.is_none() && self.zero.is_none() {
            return Some(StoredMatrix { group: k, scales: None, zeros: None });
        }
        let inner = if transposed { k } else { n };
        let rank = self.grouped.rank();
        let boundary = (0..=rank).rev().find(|axis| self.grouped[*axis..].iter().product::<usize>() == inner)?;
        let axes = if transposed { boundary..rank } else { 0..boundary };
        let mut group = 1;
        for axis in axes.rev() {
            let is_broadcast = |p: &Option<Parameter>| p.as_ref().is_none_or(|p| p.strides[axis] == 0);
            if self.grouped[axis] != 1 && !(is_broadcast(&self.scale) && is_broadcast(&self.zero)) {
                break;
            }
            group *= self.grouped[axis];
        }
        let is_worth_it = group >= FEWEST_SCALED_ELEMENTS && k.is_multiple_of(group);
        is_worth_it.then_some(())?;
        let values = |parameter: &Parameter| {
            let mut values = Vec::with_capacity(k / group * n);
            for first in (0..k).step_by(group) {
                values.extend((0..n).map(|column| {
                    let element = if transposed { column * k + first } else { first * n + column };
                    parameter.at(&self.grouped, element)
                }));
            }
            values
        };
        Some(StoredMatrix { group, scales: self.scale.as_ref().map(values), zeros: self.zero.as_ref().map(values) })
    }

    /// What tells the parameters from others of the same codes: their bits, mixed.
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        for parameter in [&self.scale, &self.zero] {
            parameter.is_some().hash(&mut hasher);
            for value in parameter.iter().flat_map(|p| &p.values) {
                value.to_bits().hash(&mut hasher);
            }
            parameter.as_ref().map(|p| &p.strides).hash(&mut hasher);
        }
        self.grouped.hash(&mut hasher);
        self.first_type.hash(&mut hasher);
        hasher.finish()
    }

    /// The number of elements that follow each other with the same parameters.
    pub fn run(&self) -> usize {
        let mut run = 1;
        for axis in (0..self.grouped.rank()).rev() {
            let is_broadcast = |p: &Option<Parameter>| p.as_ref().is_none_or(|p| p.strides[axis] == 0);
            if self.grouped[axis] != 1 && !(is_broadcast(&self.scale) && is_broadcast(&self.zero)) {
                break;
            }
            run *= self.grouped[axis];
        }
        run
    }

    /// The scale and the zero point of an element.
    pub fn parameters(&self, element: usize) -> (f32, f32) {
        let at = |p: &Option<Parameter>, absent: f32| p.as_ref().map_or(absent, |p| p.at(&self.grouped, element));
        (at(&self.scale, 1.0), at(&self.zero, 0.0))
    }
}
