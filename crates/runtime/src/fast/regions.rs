//! Layers that sample feature maps between their elements, f32: ROIAlign of means, ExperimentalDetectronROIFeatureExtractor,
//! ROIPooling and GridSample. The maps lie in blocks of channels, but for a GridSample of few of them; the result is plain.

use std::sync::Arc;

use ovir_graph::Node;
use ovir_kernels::blocked::{
    GridMode, GridPadding, GridRule, MOST_BINS, RegionMap, RegionPool, RegionTable, blocked_grid_sample,
    blocked_regions, grid_sample,
};
use ovir_kernels::isa::{self, Isa};
use ovir_ops::common::regions::{Samples, image_of};
use ovir_ops::detection::experimental_detectron_roi_feature_extractor::ExperimentalDetectronROIFeatureExtractor;
use ovir_ops::detection::roi_align::{ROIAlign, ROIAlignMode};
use ovir_ops::detection::roi_pooling::{ROIPooling, ROIPoolingMethod};
use ovir_ops::image::grid_sample::{GridSample, GridSampleMode, GridSamplePadding};
use ovir_ops::{Blame, OpError, OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, SmallVec, TensorView};

use super::blocked::{Candidate, channels};
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};
use crate::layout::{Layout, nominal_elements};

/// Regions whose tables are made at a time.
const GROUP: usize = 64;

/// Nanoseconds that an element takes less than by the reference.
const REGION_GAIN: f64 = 20.0;
const GRID_GAIN: f64 = 8.0;

/// So many channels are sampled where they lie.
const FEW_CHANNELS: usize = 4;

/// What an unknown number of regions is taken for.
const NOMINAL_REGIONS: f64 = 32.0;

struct RegionKernel {
    isa: Isa,
    operation: Arc<dyn Operation>,
}

/// A ROIAlign that the kernel can do.
fn aligned_regions<'a>(node: &'a Node, inputs: &[&ValueFacts]) -> Option<&'a ROIAlign> {
    let operation = node.operation.downcast_ref::<ROIAlign>()?;
    let (bins_y, bins_x) =
        (operation.attributes.pooled_h.max(0) as usize, operation.attributes.pooled_w.max(0) as usize);
    let [data, boxes, images] = inputs else { return None };
    let fits = bins_y.checked_mul(bins_x).is_some_and(|bins| bins <= MOST_BINS)
        && channels(data).is_some()
        && data.shape.rank() == Some(4)
        && boxes.element_type == ElementType::F32
        && matches!(images.element_type, ElementType::I32 | ElementType::I64);
    fits.then_some(operation)
}

/// A ROIPooling whose kernel can do it.
fn pooling<'a>(node: &'a Node, inputs: &[&ValueFacts]) -> Option<&'a ROIPooling> {
    let found = node.operation.downcast_ref::<ROIPooling>()?;
    let [data, regions] = inputs else { return None };
    let (bins_y, bins_x) = found.attributes.size();
    let fits = bins_y.checked_mul(bins_x).is_some_and(|bins| bins <= MOST_BINS)
        && channels(data).is_some()
        && data.shape.rank() == Some(4)
        && regions.element_type == ElementType::F32;
    fits.then_some(found)
}

/// A feature extractor whose kernel can do it.
fn extractor<'a>(node: &'a Node, inputs: &[&ValueFacts]) -> Option<&'a ExperimentalDetectronROIFeatureExtractor> {
    let found = node.operation.downcast_ref::<ExperimentalDetectronROIFeatureExtractor>()?;
    let (_, layers) = inputs.split_first()?;
    let fits = found.size().checked_mul(found.size()).is_some_and(|bins| bins <= MOST_BINS)
        && !layers.is_empty()
        && layers.iter().all(|layer| channels(layer).is_some() && layer.shape.rank() == Some(4));
    fits.then_some(found)
}

/// How a GridSample of f32 reads its grid.
fn grid_rule(node: &Node, inputs: &[&ValueFacts]) -> Option<GridRule> {
    let attributes = &node.operation.downcast_ref::<GridSample>()?.attributes;
    let [data, grid] = inputs else { return None };
    let fits =
        data.shape.rank() == Some(4) && data.element_type == ElementType::F32 && grid.element_type == ElementType::F32;
    fits.then_some(GridRule {
        mode: match attributes.mode {
            GridSampleMode::Nearest => GridMode::Nearest,
            GridSampleMode::Bilinear => GridMode::Bilinear,
            GridSampleMode::Bicubic => GridMode::Bicubic,
        },
        padding: match attributes.padding_mode {
            GridSamplePadding::Zeros => GridPadding::Zeros,
            GridSamplePadding::Border => GridPadding::Border,
            GridSamplePadding::Reflection => GridPadding::Reflection,
        },
        align_corners: attributes.align_corners,
    })
}

/// Whether a layer is one of those that can read blocks.
pub(crate) fn candidate(node: &Node, inputs: &[&ValueFacts], outputs: &[ValueFacts]) -> Option<Candidate> {
    let output = &outputs.first()?.shape;
    let has_levels = extractor(node, inputs).is_some();
    let gain = if has_levels || aligned_regions(node, inputs).is_some() || pooling(node, inputs).is_some() {
        let regions = if output.dims()?.first()?.get().is_none() { NOMINAL_REGIONS } else { 1.0 };
        regions * REGION_GAIN
    } else {
        channels(inputs.first()?).filter(|channels| *channels > FEW_CHANNELS)?;
        grid_rule(node, inputs).map(|_| GRID_GAIN)?
    };
    // Regions come first where there are several maps.
    let is_map = |port: usize| (port > 0) == has_levels;
    let layout = |port: usize| if is_map(port) { Layout::Blocked } else { Layout::Plain };
    let layouts: SmallVec<[Layout; 4]> = (0..inputs.len()).map(layout).collect();
    let gain = nominal_elements(output) * gain;
    Some(Candidate { output: Layout::Plain, gain, ..Candidate::carrier(layouts) })
}

/// Claims a layer that samples blocks.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let kernel: Box<dyn Kernel> = match grid_rule(context.node, context.inputs) {
        Some(rule) => Box::new(GridKernel { isa: isa::detect(), rule, is_blocked: true }),
        None if pooling(context.node, context.inputs).is_some() => {
            Box::new(PoolingKernel { isa: isa::detect(), operation: Arc::clone(&context.node.operation) })
        }
        None if extractor(context.node, context.inputs).is_some() => {
            Box::new(ExtractorKernel { isa: isa::detect(), operation: Arc::clone(&context.node.operation) })
        }
        None => {
            aligned_regions(context.node, context.inputs)?;
            Box::new(RegionKernel { isa: isa::detect(), operation: Arc::clone(&context.node.operation) })
        }
    };
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

/// Claims a GridSample of plain data.
pub(crate) fn claim_plain(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let rule = grid_rule(context.node, context.inputs)?;
    let kernel = Box::new(GridKernel { isa: isa::detect(), rule, is_blocked: false });
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

/// A GridSample.
struct GridKernel {
    isa: Isa,
    rule: GridRule,
    is_blocked: bool,
}

impl Kernel for GridKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data, grid], [output])
            if data.rank() == 4 && data.elements() > 0 && output.rank() == 4
                && grid[..] == [output[0], output[2], output[3], 2] && output[..2] == data[..2])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let ([data, grid], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let (&[batch, channels, height, width], &[_, _, high, wide]) = (&data.shape()[..], &output.shape()[..]) else {
            return Err(misfit());
        };
        let (values, places) = (data.slice::<f32>()?, grid.slice::<f32>()?);
        let (shape, target) = ([batch, channels, height, width], output.slice_mut::<f32>()?);
        match self.is_blocked {
            true => blocked_grid_sample(self.isa, self.rule, shape, high * wide, values, places, target),
            false => grid_sample(self.isa, self.rule, shape, high * wide, values, places, target),
        }
        .map_err(kernel_error)
    }
}

impl Kernel for RegionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data, boxes, images], [output])
            if data.rank() == 4 && data.elements() > 0 && output.rank() == 4
                && boxes[..] == [output[0], 4] && images[..] == [output[0]])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let operation = self.operation.downcast_ref::<ROIAlign>().ok_or_else(misfit)?;
        let ([data, boxes, images], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let (&[batch, channels, height, width], &[_, _, bins_y, bins_x]) = (&data.shape()[..], &output.shape()[..])
        else {
            return Err(misfit());
        };
        let images = images_of(images, batch)?;
        let (values, boxes) = (data.slice::<f32>()?, boxes.slice::<f32>()?.as_chunks::<4>().0);
        let maps = maps_of(values, batch, [height, width]);
        let region = channels * bins_y * bins_x;
        let (pool, add): (_, fn(&mut RegionTable, &Samples, usize) -> OpResult) = match operation.attributes.mode {
            ROIAlignMode::Avg => (RegionPool::Mean, add),
            ROIAlignMode::Max => (RegionPool::MaxOfSamples, add_samples),
        };
        let (mut rows, mut columns) = (RegionTable::default(), RegionTable::default());
        let groups = output.slice_mut::<f32>()?.chunks_mut((GROUP * region).max(1));
        for ((target, boxes), images) in groups.zip(boxes.chunks(GROUP)).zip(images.chunks(GROUP)) {
            rows.clear();
            columns.clear();
            for corners in boxes {
                let (lines, places) = operation.grid(corners.map(f64::from), [height, width])?;
                add(&mut rows, &lines, bins_y)?;
                add(&mut columns, &places, bins_x)?;
            }
            let (tables, bins) = ((&rows, &columns), [bins_y, bins_x]);
            blocked_regions(self.isa, pool, channels, &maps, images, bins, tables, target).map_err(kernel_error)?;
        }
        Ok(())
    }
}

/// A feature extractor of several maps.
struct ExtractorKernel {
    isa: Isa,
    operation: Arc<dyn Operation>,
}

impl Kernel for ExtractorKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([regions, layers @ ..], [output, rest @ ..]) = (shapes.inputs, shapes.outputs) else { return false };
        let fits = regions[..] == [output[0], 4] && rest.iter().all(|output| output == regions);
        fits && layers.iter().all(|layer| layer.rank() == 4 && layer.elements() > 0 && layer[..2] == [1, output[1]])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let operation = self.operation.downcast_ref::<ExperimentalDetectronROIFeatureExtractor>().ok_or_else(misfit)?;
        let ([regions, layers @ ..], [output, rest @ ..]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let (channels, size) = (output.shape()[1], operation.size());
        let sizes: SmallVec<[[usize; 2]; 4]> =
            layers.iter().map(|layer| [layer.shape()[2], layer.shape()[3]]).collect();
        let mut maps: SmallVec<[RegionMap<'_>; 4]> = SmallVec::new();
        for (layer, &[height, width]) in layers.iter().zip(&sizes) {
            maps.push(RegionMap { height, width, values: layer.slice::<f32>()? });
        }
        let boxes = regions.slice::<f32>()?.as_chunks::<4>().0;
        let (mut rows, mut columns) = (RegionTable::default(), RegionTable::default());
        let groups = output.slice_mut::<f32>()?.chunks_mut((GROUP * channels * size * size).max(1));
        for (target, boxes) in groups.zip(boxes.chunks(GROUP)) {
            rows.clear();
            columns.clear();
            let mut levels: SmallVec<[usize; GROUP]> = SmallVec::new();
            for corners in boxes {
                let nothing =
                    || (0, Samples { taps: Vec::new(), per_bin: 0 }, Samples { taps: Vec::new(), per_bin: 0 });
                let found = operation.grid(corners.map(f64::from), &sizes)?;
                let (level, lines, places) = found.unwrap_or_else(nothing);
                levels.push(level);
                add(&mut rows, &lines, size)?;
                add(&mut columns, &places, size)?;
            }
            let tables = (&rows, &columns);
            blocked_regions(self.isa, RegionPool::Mean, channels, &maps, &levels, [size, size], tables, target)
                .map_err(kernel_error)?;
        }
        if let [copy] = rest {
            copy.slice_mut::<f32>()?.copy_from_slice(regions.slice::<f32>()?);
        }
        Ok(())
    }
}

/// The maps of a batch of images.
fn maps_of(values: &[f32], batch: usize, [height, width]: [usize; 2]) -> Vec<RegionMap<'_>> {
    let of_image = (values.len() / batch.max(1)).max(1);
    values.chunks_exact(of_image).map(|values| RegionMap { height, width, values }).collect()
}

/// A ROIPooling of blocks.
struct PoolingKernel {
    isa: Isa,
    operation: Arc<dyn Operation>,
}

impl Kernel for PoolingKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data, regions], [output])
            if data.rank() == 4 && data.elements() > 0 && output.rank() == 4 && regions[..] == [output[0], 5])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let operation = self.operation.downcast_ref::<ROIPooling>().ok_or_else(misfit)?;
        let ([data, regions], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let (&[batch, channels, height, width], &[_, _, bins_y, bins_x]) = (&data.shape()[..], &output.shape()[..])
        else {
            return Err(misfit());
        };
        let pool = match operation.attributes.method {
            ROIPoolingMethod::Max => RegionPool::Max,
            ROIPoolingMethod::Bilinear => RegionPool::Mean,
        };
        let all = regions.slice::<f32>()?.as_chunks::<5>().0;
        // A batch index of -1 ends the list.
        let used = all.iter().position(|region| region[0] == -1.0).unwrap_or(all.len());
        let region = channels * bins_y * bins_x;
        let (target, unused) = output.slice_mut::<f32>()?.split_at_mut(used * region);
        unused.fill(0.0);
        let (maps, bins) = (maps_of(data.slice::<f32>()?, batch, [height, width]), [bins_y, bins_x]);
        let (mut rows, mut columns) = (RegionTable::default(), RegionTable::default());
        let groups = target.chunks_mut((GROUP * region).max(1)).zip(all[..used].chunks(GROUP));
        for (group, (target, regions)) in groups.enumerate() {
            rows.clear();
            columns.clear();
            let mut images: SmallVec<[usize; GROUP]> = SmallVec::new();
            for (at, [image, x1, y1, x2, y2]) in regions.iter().enumerate() {
                images.push(image_of(*image as i64, group * GROUP + at, batch, 1)?);
                add_bins(operation, &mut rows, (*y1, *y2), bins_y, height)?;
                add_bins(operation, &mut columns, (*x1, *x2), bins_x, width)?;
            }
            blocked_regions(self.isa, pool, channels, &maps, &images, bins, (&rows, &columns), target)
                .map_err(kernel_error)?;
        }
        Ok(())
    }
}

/// Adds the bins of a region of ROIPooling along an axis of `size` elements.
fn add_bins(
    operation: &ROIPooling,
    table: &mut RegionTable,
    (start, end): (f32, f32),
    bins: usize,
    size: usize,
) -> OpResult {
    for bin in 0..bins {
        let mut pushed = Ok(());
        operation.for_each_tap((f64::from(start), f64::from(end)), (bins, bin), size, |place, weight| {
            pushed = pushed.and_then(|()| table.push(place, weight));
        });
        pushed.map_err(kernel_error)?;
        table.end_bin(1.0);
    }
    Ok(())
}

/// The image of each region.
fn images_of(indices: &TensorView<'_>, batch: usize) -> OpResult<Vec<usize>> {
    let image = |(region, index): (usize, i64)| image_of(index, region, batch, 2);
    match indices.element_type() {
        ElementType::I32 => indices.slice::<i32>()?.iter().map(|i| i64::from(*i)).enumerate().map(image).collect(),
        _ => indices.slice::<i64>()?.iter().copied().enumerate().map(image).collect(),
    }
}

/// Adds the bins of a region. Samples outside of the map are zero, but count.
fn add(table: &mut RegionTable, samples: &Samples, bins: usize) -> OpResult {
    for bin in 0..bins {
        for (first, second, weight) in samples.of_bin(bin).iter().flatten() {
            table.push(*first, (1.0 - weight) as f32).map_err(kernel_error)?;
            table.push(*second, *weight as f32).map_err(kernel_error)?;
        }
        table.end_bin(1.0 / samples.per_bin.max(1) as f32);
    }
    Ok(())
}

/// Adds the bins of a region, each of whose samples counts by itself.
fn add_samples(table: &mut RegionTable, samples: &Samples, bins: usize) -> OpResult {
    for bin in 0..bins {
        for (first, second, weight) in samples.of_bin(bin).iter().flatten() {
            let weights = [(1.0 - weight) as f32, *weight as f32];
            table.push_sample([*first, *second], weights).map_err(kernel_error)?;
        }
        table.end_bin(1.0);
    }
    Ok(())
}
