//! Contractions of two operands as batches of matrix products, f32.

use ovir_kernels::epilogue::Epilogue;
use ovir_kernels::gemm::{MatMulGeometry, matmul, matmul_scratch_len};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::movement::StridedCopy;
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_ops::matrix::einsum::Einsum;
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::parts::{kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// The most batch axes that the products take.
const MOST_BATCH_AXES: usize = 4;

/// Parts of the scratch begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;

struct Contraction {
    isa: Isa,
    einsum: Einsum,
}

/// An axis of the computation, with its strides in both operands and in the result.
#[derive(Debug, Clone, Copy)]
struct Axis {
    size: usize,
    strides: [usize; 3],
}

type Axes = SmallVec<[Axis; 8]>;

/// The axes by what they are in the products.
#[derive(Default)]
struct Roles {
    batch: Axes,
    rows: Axes,
    columns: Axes,
    summed: Axes,
}

/// The products, and the copies that make matrices of what does not lie so: of the operands before, of the result after.
struct Products {
    /// Whether the second operand is on the left.
    are_turned: bool,
    geometry: MatMulGeometry,
    copies: [Option<StridedCopy>; 3],
}

/// Claims contractions of two f32 operands.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let einsum = context.node.operation.downcast_ref::<Einsum>()?;
    let is_f32 = context.inputs.iter().all(|facts| facts.element_type == ElementType::F32);
    if context.inputs.len() != 2 || !is_f32 {
        return None;
    }
    let kernel = Contraction { isa: isa::detect(), einsum: einsum.clone() };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl Contraction {
    /// The products for these shapes; `None` where there is nothing to compute, where one operand alone is summed over
    /// an axis, or where there are too many axes.
    fn products(&self, a: &Shape, b: &Shape) -> Option<Products> {
        let mut roles = self.roles(a, b)?;
        let (mut result, mut operands) = (roles.result()?, [a, b]);
        // A result whose rows are contiguous instead of its columns is that of the transposed product, without a copy.
        let mut are_turned = false;
        if result.1.is_some() {
            roles.turn();
            match roles.result().filter(|(_, copy)| copy.is_none()) {
                Some(turned) => (result, operands, are_turned) = (turned, [b, a], true),
                None => roles.turn(),
            }
        }
        let geometry = MatMulGeometry {
            batch: roles.batch_of(|axis| axis.size, 1)?,
            m: count(&roles.rows),
            n: count(&roles.columns),
            k: count(&roles.summed),
            a_batch: [0; MOST_BATCH_AXES],
            a_row: 0,
            a_column: 0,
            b_batch: [0; MOST_BATCH_AXES],
            b_row: 0,
            b_column: 0,
            c_batch: [0; MOST_BATCH_AXES],
            c_row: 0,
        };
        let mut products = Products { are_turned, geometry, copies: [None, None, None] };
        let geometry = &mut products.geometry;
        let (a_matrix, a_copy) = roles.matrix(0, &roles.rows, &roles.summed, operands[0].elements())?;
        (geometry.a_batch, geometry.a_row, geometry.a_column) = a_matrix;
        let (b_matrix, b_copy) = roles.matrix(1, &roles.summed, &roles.columns, operands[1].elements())?;
        (geometry.b_batch, geometry.b_row, geometry.b_column) = b_matrix;
        let (c_matrix, c_copy) = result;
        (geometry.c_batch, geometry.c_row, _) = c_matrix;
        products.copies = [a_copy, b_copy, c_copy];
        Some(products)
    }

    fn roles(&self, a: &Shape, b: &Shape) -> Option<Roles> {
        let plan = self.einsum.plan(&[a, b]).ok()?;
        let [(a_outer, a_summed), (b_outer, b_summed)] = &plan.strides[..] else { return None };
        if plan.shape.elements() == 0 || plan.summed.elements() == 0 {
            return None;
        }
        let mut roles = Roles::default();
        for (i, stride) in plan.shape.strides().into_iter().enumerate().filter(|(i, _)| plan.shape[*i] > 1) {
            let axis = Axis { size: plan.shape[i], strides: [a_outer[i], b_outer[i], stride] };
            match (a_outer[i] > 0, b_outer[i] > 0) {
                (true, true) => roles.batch.push(axis),
                (true, false) => roles.rows.push(axis),
                (false, _) => roles.columns.push(axis),
            }
        }
        for i in (0..plan.summed.rank()).filter(|i| plan.summed[*i] > 1) {
            if a_summed[i] == 0 || b_summed[i] == 0 {
                return None;
            }
            roles.summed.push(Axis { size: plan.summed[i], strides: [a_summed[i], b_summed[i], 0] });
        }
        Some(roles)
    }

    fn of_shapes(&self, shapes: &StepShapes<'_>) -> Option<Products> {
        let [a, b] = shapes.inputs else { return None };
        self.products(a, b)
    }
}

/// Batch strides and the strides of rows and columns.
type Matrix = ([usize; MOST_BATCH_AXES], usize, usize);

impl Roles {
    /// Makes the second operand the left one, whose rows then are what were its columns.
    fn turn(&mut self) {
        std::mem::swap(&mut self.rows, &mut self.columns);
        let axes = [&mut self.batch, &mut self.rows, &mut self.columns, &mut self.summed];
        axes.into_iter().flatten().for_each(|axis| axis.strides.swap(0, 1));
    }

    /// One number for each batch axis.
    fn batch_of(&self, number: impl Fn(&Axis) -> usize, absent: usize) -> Option<[usize; MOST_BATCH_AXES]> {
        let mut numbers = [absent; MOST_BATCH_AXES];
        let first = MOST_BATCH_AXES.checked_sub(self.batch.len())?;
        for (slot, axis) in numbers[first..].iter_mut().zip(&self.batch) {
            *slot = number(axis);
        }
        Some(numbers)
    }

    /// An operand as matrices of `rows` and `columns`: as it lies if that can be said by two strides, else as a copy.
    fn matrix(&self, operand: usize, rows: &Axes, columns: &Axes, len: usize) -> Option<(Matrix, Option<StridedCopy>)> {
        if let (Some(row), Some(column)) = (joined(rows, operand), joined(columns, operand)) {
            return Some(((self.batch_of(|axis| axis.strides[operand], 0)?, row, column), None));
        }
        let axes = || self.batch.iter().chain(rows).chain(columns);
        let sizes: SmallVec<[usize; 8]> = axes().map(|axis| axis.size).collect();
        let strides: SmallVec<[isize; 8]> = axes().map(|axis| axis.strides[operand] as isize).collect();
        let copy = StridedCopy::gather_strided(&sizes, &strides, 0, len).ok()?;
        let (row, column) = (count(columns), 1);
        Some(((self.dense_batch(count(rows).checked_mul(row)?)?, row, column), Some(copy)))
    }

    /// The result, written as it lies if its columns are contiguous, else as dense matrices that are copied.
    fn result(&self) -> Option<(Matrix, Option<StridedCopy>)> {
        let (rows, columns) = (count(&self.rows), count(&self.columns));
        let row = joined(&self.rows, 2).filter(|row| *row >= columns || self.rows.is_empty());
        if let (Some(row), Some(1)) = (row, joined(&self.columns, 2)) {
            return Some(((self.batch_of(|axis| axis.strides[2], 0)?, row.max(columns), 1), None));
        }
        let axes = || self.batch.iter().chain(&self.rows).chain(&self.columns);
        let mut moves: SmallVec<[(usize, isize, isize); 8]> =
            axes().map(|axis| (axis.size, 0, axis.strides[2] as isize)).collect();
        let mut stride = 1usize;
        for axis in moves.iter_mut().rev() {
            axis.1 = stride as isize;
            stride = stride.checked_mul(axis.0)?;
        }
        let copy = StridedCopy::new(&moves, 0, 0, stride, stride).ok()?;
        Some(((self.dense_batch(rows.checked_mul(columns)?)?, columns, 1), Some(copy)))
    }

    /// The strides of batch axes of dense matrices of `elements`.
    fn dense_batch(&self, elements: usize) -> Option<[usize; MOST_BATCH_AXES]> {
        let mut strides = [0; MOST_BATCH_AXES];
        let mut stride = elements;
        for (slot, axis) in strides.iter_mut().rev().zip(self.batch.iter().rev()) {
            *slot = stride;
            stride = stride.checked_mul(axis.size)?;
        }
        Some(strides)
    }
}

impl Products {
    fn batches(&self) -> usize {
        self.geometry.batch.iter().product()
    }

    /// The bytes of both operands' copies, of the result's and of the products' scratch, each rounded up.
    fn scratch(&self, isa: Isa) -> [usize; 4] {
        let copied = |index: usize| self.copies[index].as_ref().map_or(0, StridedCopy::count);
        [copied(0), copied(1), copied(2), matmul_scratch_len(isa, &self.geometry)]
            .map(|elements| elements.saturating_mul(4).next_multiple_of(ALIGNMENT))
    }
}

impl Kernel for Contraction {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.of_shapes(shapes).is_some()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.of_shapes(shapes).map_or(0, |products| products.scratch(self.isa).iter().sum())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.of_shapes(shapes).map_or(0, |products| {
            let g = &products.geometry;
            nanoseconds_for_flops(2 * products.batches() as u64 * g.m as u64 * g.n as u64 * g.k as u64)
        })
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [a, b] = io.inputs else { return Ok(()) };
        let [output] = io.outputs else { return Ok(()) };
        let products = self.products(a.shape(), b.shape());
        let products = products.ok_or_else(|| OpError::shape(Blame::Node, "the contraction is no matrix product"))?;
        let [a, b] = if products.are_turned { [b, a] } else { [a, b] };
        let sizes = products.scratch(self.isa);
        let (copy_a, rest) = io.scratch.split_at_mut(sizes[0]);
        let (copy_b, rest) = rest.split_at_mut(sizes[1]);
        let (copy_c, rest) = rest.split_at_mut(sizes[2]);
        for (copy, source, target) in [(&products.copies[0], a, &mut *copy_a), (&products.copies[1], b, &mut *copy_b)] {
            if let Some(copy) = copy {
                copy.run(4, source.bytes(), &mut target[..4 * copy.count()]).map_err(kernel_error)?;
            }
        }
        let left = if products.copies[0].is_some() { scratch_f32(copy_a) } else { a.slice::<f32>()? };
        let right = if products.copies[1].is_some() { scratch_f32(copy_b) } else { b.slice::<f32>()? };
        let scratch = scratch_f32(rest);
        let (geometry, epilogue) = (&products.geometry, Epilogue::default());
        let Some(copy) = &products.copies[2] else {
            let target = output.slice_mut::<f32>()?;
            return matmul(self.isa, geometry, left, right, target, &epilogue, scratch).map_err(kernel_error);
        };
        let dense = &mut copy_c[..4 * copy.count()];
        matmul(self.isa, geometry, left, right, scratch_f32(dense), &epilogue, scratch).map_err(kernel_error)?;
        copy.run(4, dense, output.bytes_mut()).map_err(kernel_error)
    }
}

/// The elements of all axes together.
fn count(axes: &Axes) -> usize {
    axes.iter().map(|axis| axis.size).product()
}

/// The stride of all axes as one, if they lie so; that of no axes is 1.
fn joined(axes: &Axes, operand: usize) -> Option<usize> {
    let follows = |pair: &[Axis]| pair[1].strides[operand].checked_mul(pair[1].size) == Some(pair[0].strides[operand]);
    let is_joined = axes.windows(2).all(follows);
    is_joined.then(|| axes.last().map_or(1, |axis| axis.strides[operand]))
}
