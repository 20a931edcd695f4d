//! Matrix products, f32.

use std::sync::Arc;

use ovir_kernels::epilogue::{Activation, Channelwise, Epilogue, Residual};
use ovir_kernels::gemm::{
    CompressedB, CompressedMatrix, MatMulGeometry, PackedB, gemm_compressed_b, gemm_packed_b,
    gemm_packed_b_scratch_len, matmul, matmul_packed_b, matmul_packed_b_scratch_len, matmul_scratch_len,
    product_nanoseconds,
};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::quantized::{Bf16Weights, DynamicWeights};
use ovir_ops::matrix::matmul::{MatMul, MatMulAttributes};
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, SmallVec};

use crate::decompression::Stored;
use crate::precision::InferencePrecision;

use super::parts::{EpilogueParts, Parts, kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, PackKey, StepIo, StepShapes};

/// Bytes of a constant from which on it is read in place. The border is not measured.
const LEAST_IN_PLACE: usize = 1 << 20;

/// A product with a constant right operand.
struct PackedProduct {
    isa: Isa,
    weights: Weights,
    epilogue: EpilogueParts,
    data_port: usize,
}

/// A packed right operand.
enum Weights {
    /// As f32.
    Wide(Arc<PackedB>),
    /// As the model stores it.
    Stored(Arc<CompressedB>),
}

/// A constant right operand, which tells the kernel.
enum Operand {
    Plain(Weights),
    /// The data are quantised as they come.
    Dynamic(Arc<DynamicWeights>),
    /// The data are rounded to bf16.
    Bf16(Arc<Bf16Weights>),
}

/// Products with constant right operands, several matrices of them.
struct PackedProducts {
    isa: Isa,
    weights: Arc<Vec<PackedB>>,
    /// The shape of the constant.
    shape: Shape,
    transpose_b: bool,
    epilogue: EpilogueParts,
    data_port: usize,
}

/// A product of two computed operands.
struct Product {
    isa: Isa,
    /// Whether A and B are transposed.
    transposes: [bool; 2],
    ports: (usize, usize),
    epilogue: EpilogueParts,
}

/// Claims f32 products.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let parts = Parts::of(context.node)?;
    let attributes = parts.root.downcast_ref::<MatMul>()?.attributes.clone();
    let ports = (*parts.inputs.first()?, *parts.inputs.get(1)?);
    let is_f32 = |port: usize| context.inputs.get(port).is_some_and(|f| f.element_type == ElementType::F32);
    if !is_f32(ports.0) || !is_f32(ports.1) {
        return None;
    }
    let isa = isa::detect();
    let columns = context.outputs.first()?.shape.dims().and_then(|d| d.last()?.get());
    let has_rows = context.inputs[ports.0].shape.rank().is_some_and(|rank| rank >= 2);
    if has_rows
        && !reads_in_place(context, ports.1, &attributes)
        && let Some((operand, n)) = constant_operand(context, ports.1, &attributes)
        && columns == Some(n)
    {
        let epilogue = parts.epilogue(context, n)?;
        let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::from_slice(&[ports.1]);
        packed_inputs.extend(parts.packed_ports(&epilogue));
        let kernel = match operand {
            Operand::Plain(weights) => Box::new(PackedProduct { isa, weights, epilogue, data_port: ports.0 }),
            Operand::Dynamic(weights) => super::dynamic::product(weights, ports.0, epilogue),
            Operand::Bf16(weights) => super::bf16::product(weights, ports.0, epilogue),
        };
        return Some(Claim { kernel, packed_inputs });
    }
    if has_rows
        && let Some(epilogue) = columns.and_then(|columns| parts.epilogue(context, columns))
        && let Some((weights, shape)) = constant_matrices(context, ports.1, &attributes)
    {
        let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::from_slice(&[ports.1]);
        packed_inputs.extend(parts.packed_ports(&epilogue));
        let (transpose_b, data_port) = (attributes.transpose_b, ports.0);
        let kernel = Box::new(PackedProducts { isa, weights, shape, transpose_b, epilogue, data_port });
        return Some(Claim { kernel, packed_inputs });
    }
    let epilogue = match columns {
        Some(columns) => parts.epilogue(context, columns)?,
        None if parts.bias.is_none() && parts.activation.is_none() && parts.residual.is_none() => {
            EpilogueParts::default()
        }
        None => return None,
    };
    let packed_inputs = parts.packed_ports(&epilogue).into_iter().collect();
    let kernel = Product { isa, transposes: [attributes.transpose_a, attributes.transpose_b], ports, epilogue };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
}

/// Whether a constant is read where it lies: one row of data meets each element once, so that a packed copy would only cost
/// memory and a slow first inference. Constants that are stored otherwise, are to be rounded or have to be evaluated are
/// not.
fn reads_in_place(context: &mut ClaimContext<'_>, port: usize, attributes: &MatMulAttributes) -> bool {
    let one_row = |shape: Shape| Some(shape.elements() == *shape.last()?);
    let is_one_row = context.outputs.first().and_then(|output| output.shape.to_shape()).and_then(one_row);
    if attributes.transpose_a
        || !attributes.transpose_b
        || context.precision != InferencePrecision::F32
        || is_one_row != Some(true)
        || (context.stored)(port).is_some()
    {
        return false;
    }
    let Some(tensor) = (context.constant)(port) else { return false };
    let is_in_file = matches!(context.key(port, &tensor), PackKey::Bytes(..));
    is_in_file && tensor.bytes().len() >= LEAST_IN_PLACE && tensor.slice::<f32>().is_ok()
}

/// The constant right operand, packed, and its columns: in a form that has the data rounded where that is wanted.
fn constant_operand(
    context: &mut ClaimContext<'_>,
    port: usize,
    attributes: &MatMulAttributes,
) -> Option<(Operand, usize)> {
    let shape = context.inputs.get(port)?.shape.to_shape()?;
    let (k, n) = matrix(&shape, attributes.transpose_b).filter(|_| !attributes.transpose_a)?;
    let strides = if attributes.transpose_b { [1, k] } else { [n, 1] };
    if let Some(weights) = super::dynamic::weights(context, port, [k, n], strides) {
        return Some((Operand::Dynamic(weights), n));
    }
    if let Some(weights) = super::bf16::matrix_weights(context, port, [k, n], strides) {
        return Some((Operand::Bf16(weights), n));
    }
    if let Some(stored) = (context.stored)(port).filter(Stored::is_large)
        && let Some(weights) = packed_matrix(context, &stored, [k, n], strides, "stored matmul", |matrix| {
            CompressedB::pack(isa::detect(), matrix).ok()
        })
    {
        return Some((Operand::Plain(Weights::Stored(weights)), n));
    }
    let tensor = (context.constant)(port)?;
    let key = context.key(port, &tensor);
    let packed = context.packed.get(key, format!("matmul {k}x{n} {}", attributes.transpose_b), || {
        PackedB::pack(isa::detect(), k, n, tensor.aligned().ok()?.slice::<f32>().ok()?, strides[0], strides[1]).ok()
    })?;
    Some((Operand::Plain(Weights::Wide(packed)), n))
}

/// A constant right operand of several matrices, each packed, and its shape. Those that are stored in few bits stay so, and
/// those whose data are rounded have no such form.
fn constant_matrices(
    context: &mut ClaimContext<'_>,
    port: usize,
    attributes: &MatMulAttributes,
) -> Option<(Arc<Vec<PackedB>>, Shape)> {
    let shape = context.inputs.get(port)?.shape.to_shape()?;
    let [batch @ .., rows, columns] = &shape[..] else { return None };
    let (k, n) = if attributes.transpose_b { (*columns, *rows) } else { (*rows, *columns) };
    let is_stored = (context.stored)(port).is_some_and(|stored| stored.is_large());
    let several = batch.iter().any(|size| *size > 1) && shape.elements() > 0;
    if !several || is_stored || attributes.transpose_a || context.precision != InferencePrecision::F32 {
        return None;
    }
    let [row_stride, column_stride] = if attributes.transpose_b { [1, k] } else { [n, 1] };
    let tensor = (context.constant)(port)?;
    let key = context.key(port, &tensor);
    let packed = context.packed.get(key, format!("matmuls {k}x{n} {}", attributes.transpose_b), || {
        let tensor = tensor.aligned().ok()?;
        let matrices = tensor.slice::<f32>().ok()?.chunks_exact(k * n);
        matrices.map(|values| PackedB::pack(isa::detect(), k, n, values, row_stride, column_stride).ok()).collect()
    })?;
    Some((packed, shape))
}

/// A stored matrix of so many rows and columns, whose values lie so far apart along both, packed in the form of this name.
pub(super) fn packed_matrix<T: Send + Sync + 'static>(
    context: &mut ClaimContext<'_>,
    stored: &Stored,
    [k, n]: [usize; 2],
    [row_stride, column_stride]: [usize; 2],
    form: &str,
    pack: impl FnOnce(&CompressedMatrix<'_>) -> Option<T>,
) -> Option<Arc<T>> {
    let parameters = stored.matrix(k, n, row_stride == 1)?;
    let (address, length) = stored.codes.identity();
    // The parameters are part of the value, so that one constant with two scales is packed twice.
    let format = format!("{form} {k}x{n} {row_stride} {column_stride} {}", stored.fingerprint());
    let packed = context.packed.get(PackKey::Bytes(address, length), format, || {
        let codes = stored.codes()?;
        let (scales, zeros) = (parameters.scales.as_deref(), parameters.zeros.as_deref());
        let (codes, group) = (codes.view(), parameters.group);
        pack(&CompressedMatrix { k, n, codes, row_stride, column_stride, group, scales, zeros })
    })?;
    // The pages of the codes were read once; kernels read the packed form from now on.
    stored.codes.release();
    Some(packed)
}

/// Rows and columns of a constant that is one matrix, whatever leading ones its shape has.
fn matrix(shape: &Shape, transposed: bool) -> Option<(usize, usize)> {
    let (batch, matrix) = shape.split_at(shape.rank().checked_sub(2)?);
    let is_single = batch.iter().all(|size| *size == 1) && !matrix.contains(&0);
    is_single.then_some(if transposed { (matrix[1], matrix[0]) } else { (matrix[0], matrix[1]) })
}

pub(super) fn as_epilogue<'e>(parts: &'e EpilogueParts, residual: Option<&'e [f32]>, columns: usize) -> Epilogue<'e> {
    Epilogue {
        bias: parts.bias.as_deref().map_or(Channelwise::None, Channelwise::PerColumn),
        residual: residual.map(|values| Residual { values, row_stride: columns }),
        activation: parts.activation.view(false),
    }
}

pub(super) fn same_residual(epilogue: &EpilogueParts, shapes: &StepShapes<'_>) -> bool {
    epilogue
        .residual
        .is_none_or(|port| shapes.inputs.get(port).map(|s| &s[..]) == shapes.outputs.first().map(|s| &s[..]))
}

fn residual<'a>(epilogue: &EpilogueParts, io: &StepIo<'_, 'a>) -> OpResult<Option<&'a [f32]>> {
    match epilogue.residual {
        Some(port) => Ok(Some(io.inputs[port].slice::<f32>()?)),
        None => Ok(None),
    }
}

impl Weights {
    fn k(&self) -> usize {
        match self {
            Weights::Wide(packed) => packed.k(),
            Weights::Stored(packed) => packed.k(),
        }
    }

    fn n(&self) -> usize {
        match self {
            Weights::Wide(packed) => packed.n(),
            Weights::Stored(packed) => packed.n(),
        }
    }

    fn read_nanoseconds(&self) -> u64 {
        match self {
            Weights::Wide(packed) => (packed.k() * packed.n()) as u64 / 4,
            Weights::Stored(packed) => packed.read_nanoseconds(),
        }
    }
}

impl PackedProduct {
    fn rows(&self, shapes: &StepShapes<'_>) -> usize {
        shapes.outputs.first().map_or(0, |s| s.elements()) / self.weights.n().max(1)
    }
}

impl Kernel for PackedProduct {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let data = shapes.inputs.get(self.data_port);
        let fits = data.is_some_and(|s| s.last() == Some(&self.weights.k()) && s.rank() >= 2);
        fits && shapes.outputs.first().is_some_and(|s| s.last() == Some(&self.weights.n()))
            && data.is_some_and(|s| s.elements() / self.weights.k().max(1) == self.rows(shapes))
            && same_residual(&self.epilogue, shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        4 * gemm_packed_b_scratch_len(self.isa, self.rows(shapes), self.weights.k(), self.weights.k())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let sizes = [self.rows(shapes), self.weights.k(), self.weights.n()];
        work_nanoseconds(1, sizes, &self.epilogue).max(self.weights.read_nanoseconds())
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let (k, n) = (self.weights.k(), self.weights.n());
        let residual = residual(&self.epilogue, &io)?;
        let [output] = io.outputs else { return Ok(()) };
        let target = output.slice_mut::<f32>()?;
        // One row, as of the smallest products, needs no division.
        let rows = if target.len() == n { n.min(1) } else { target.len() / n.max(1) };
        let epilogue = as_epilogue(&self.epilogue, residual, n);
        let data = io.inputs[self.data_port].slice::<f32>()?;
        let scratch = scratch_f32(io.scratch);
        match &self.weights {
            Weights::Wide(b) => gemm_packed_b(self.isa, rows, data, k, b, target, n, &epilogue, scratch),
            Weights::Stored(b) => gemm_compressed_b(self.isa, rows, data, k, b, target, n, &epilogue, scratch),
        }
        .map_err(kernel_error)
    }
}

impl PackedProducts {
    /// The geometry, in which the right operand's strides count matrices.
    fn geometry(&self, data: &[usize], output: &[usize]) -> Option<MatMulGeometry> {
        let mut geometry = geometry([false, self.transpose_b], data, &self.shape, output)?;
        let matrix = geometry.k * geometry.n;
        let fits = self.weights.iter().all(|packed| (packed.k(), packed.n()) == (geometry.k, geometry.n));
        geometry.b_batch = geometry.b_batch.map(|stride| stride.checked_div(matrix).unwrap_or(0));
        fits.then_some(geometry)
    }

    fn of_shapes(&self, shapes: &StepShapes<'_>) -> Option<MatMulGeometry> {
        self.geometry(shapes.inputs.get(self.data_port)?, shapes.outputs.first()?)
    }
}

impl Kernel for PackedProducts {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.of_shapes(shapes).is_some() && same_residual(&self.epilogue, shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.of_shapes(shapes).map_or(0, |geometry| 4 * matmul_packed_b_scratch_len(self.isa, &geometry))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.of_shapes(shapes)
            .map_or(0, |g| work_nanoseconds(g.batch.iter().product(), [g.m, g.k, g.n], &self.epilogue))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let residual = residual(&self.epilogue, &io)?;
        let data = &io.inputs[self.data_port];
        let [output] = io.outputs else { return Ok(()) };
        let geometry = self.geometry(data.shape(), output.shape());
        let geometry = geometry.ok_or_else(|| OpError::shape(Blame::Node, "the product has too many batch axes"))?;
        let epilogue = as_epilogue(&self.epilogue, residual, geometry.n);
        let (data, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        matmul_packed_b(self.isa, &geometry, data, &self.weights, target, &epilogue, scratch_f32(io.scratch))
            .map_err(kernel_error)
    }
}

/// What a batch of products takes on one thread.
fn work_nanoseconds(products: usize, sizes: [usize; 3], epilogue: &EpilogueParts) -> u64 {
    // Any residual counts as much as another.
    let residual = epilogue.residual.map(|_| &[][..]);
    product_nanoseconds(products, sizes, &as_epilogue(epilogue, residual, sizes[2]))
}

/// The geometry of a product of shapes, if it has at most four batch axes that matter. A vector on the left is a row and one on the
/// right a column, neither of which is transposed. Rows of all products with one right operand are rows of one product.
pub(super) fn geometry(
    [transpose_a, transpose_b]: [bool; 2],
    a: &[usize],
    b: &[usize],
    c: &[usize],
) -> Option<MatMulGeometry> {
    let (transpose_a, transpose_b) = (transpose_a && a.len() > 1, transpose_b && b.len() > 1);
    let (mut a, mut b, mut c) = (Shape::from_slice(a), Shape::from_slice(b), Shape::from_slice(c));
    if b.len() == 1 {
        b.push(1);
        c.push(1);
    }
    if a.len() == 1 {
        a.insert(0, 1);
        c.insert(c.len().checked_sub(1)?, 1);
    }
    if a.len() < 2 || b.len() < 2 || c.len() < 2 {
        return None;
    }
    let (a_batch, a_matrix) = a.split_at(a.len() - 2);
    let (b_batch, _) = b.split_at(b.len() - 2);
    let (c_batch, c_matrix) = c.split_at(c.len() - 2);
    let (m, n) = (c_matrix[0], c_matrix[1]);
    let k = if transpose_a { a_matrix[0] } else { a_matrix[1] };
    if !transpose_a && a_batch == c_batch && b_batch.iter().all(|size| *size == 1) {
        let rows = c_batch.iter().try_fold(m, |rows, size| rows.checked_mul(*size))?;
        return Some(MatMulGeometry {
            batch: [1; 4],
            ..MatMulGeometry::dense(1, rows, k, n, transpose_a, transpose_b, true, true)
        });
    }
    let axes: SmallVec<[(usize, usize, usize); 8]> = (0..c_batch.len())
        .map(|i| {
            let of = |batch: &[usize]| (i + batch.len()).checked_sub(c_batch.len()).map_or(1, |k| batch[k]);
            (c_batch[i], of(a_batch), of(b_batch))
        })
        .filter(|(size, ..)| *size != 1)
        .collect();
    if axes.len() > 4 {
        return None;
    }
    let mut geometry = MatMulGeometry::dense(1, m, k, n, transpose_a, transpose_b, true, true);
    let (mut a_step, mut b_step, mut c_step) = (m * k, k * n, m * n);
    for (place, (size, a_size, b_size)) in (0..4).rev().zip(axes.iter().rev()) {
        geometry.batch[place] = *size;
        geometry.a_batch[place] = if *a_size == 1 { 0 } else { a_step };
        geometry.b_batch[place] = if *b_size == 1 { 0 } else { b_step };
        geometry.c_batch[place] = c_step;
        a_step *= a_size;
        b_step *= b_size;
        c_step *= size;
    }
    if axes.is_empty() {
        geometry.batch = [1; 4];
    }
    Some(geometry)
}

impl Product {
    /// The geometry, and whether the operands change places in it.
    fn geometry(&self, a: &[usize], b: &[usize], c: &[usize]) -> Option<(MatMulGeometry, bool)> {
        // The last axis of a product with a vector is one of rows, and what the epilogue has for it is one of columns: so the
        // vector becomes the row, and the rows the columns.
        let is_by_column = self.epilogue.bias.is_some()
            || matches!(self.epilogue.activation.view(false), Activation::PRelu(Channelwise::PerColumn(_)));
        if b.len() == 1 && is_by_column {
            let (batch, matrix) = a.split_at_checked(a.len().checked_sub(2)?)?;
            let batch = batch.iter().try_fold(1usize, |total, size| total.checked_mul(*size))?;
            let (m, k) = if self.transposes[0] { (matrix[1], matrix[0]) } else { (matrix[0], matrix[1]) };
            return Some((MatMulGeometry::dense(batch, 1, k, m, false, !self.transposes[0], false, true), true));
        }
        Some((geometry(self.transposes, a, b, c)?, false))
    }

    fn of_shapes(&self, shapes: &StepShapes<'_>) -> Option<MatMulGeometry> {
        let (a, b) = (shapes.inputs.get(self.ports.0)?, shapes.inputs.get(self.ports.1)?);
        self.geometry(a, b, shapes.outputs.first()?).map(|(geometry, _)| geometry)
    }
}

impl Kernel for Product {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.of_shapes(shapes).is_some() && same_residual(&self.epilogue, shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.of_shapes(shapes).map_or(0, |g| 4 * matmul_scratch_len(self.isa, &g))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.of_shapes(shapes)
            .map_or(0, |g| work_nanoseconds(g.batch.iter().product(), [g.m, g.k, g.n], &self.epilogue))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let residual = residual(&self.epilogue, &io)?;
        let (a, b) = (&io.inputs[self.ports.0], &io.inputs[self.ports.1]);
        let [output] = io.outputs else { return Ok(()) };
        let geometry = self.geometry(a.shape(), b.shape(), output.shape());
        let (geometry, are_swapped) =
            geometry.ok_or_else(|| OpError::shape(Blame::Node, "the product has too many batch axes"))?;
        let (a, b) = if are_swapped { (b, a) } else { (a, b) };
        let columns = geometry.n;
        let target = output.slice_mut::<f32>()?;
        let epilogue = as_epilogue(&self.epilogue, residual, columns);
        let scratch = scratch_f32(io.scratch);
        matmul(self.isa, &geometry, a.slice::<f32>()?, b.slice::<f32>()?, target, &epilogue, scratch)
            .map_err(kernel_error)
    }
}
