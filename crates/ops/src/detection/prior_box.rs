//! # PriorBox
//! The default boxes of every cell of a feature map, and their variances.
//!
//! Specification: `detection/prior-box-1`, `detection/prior-box-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | output_size | any integer type | `[2]`: height and width of the map |
//! | in 1 | image_size | any integer type | `[2]`: height and width of the image |
//! | out 0 | | f32 | `[2, 4 * height * width * boxes of a cell]` |
//!
//! Version 8 adds `min_max_aspect_ratios_order`; version 1 has the box of `max_size` before those of the ratios. The number
//! of boxes of a cell is that of the boxes which the attributes describe. A `fixed_size` without `density` has density 1.
//! Everything is computed in f32.

use std::sync::Arc;

use ovir_tensor::Shape;

use crate::common::priors::{height_and_width, infer_priors, variance};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of PriorBox.
pub static PRIOR_BOX: OpDef = OpDef {
    type_name: "PriorBox",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (1, 7), (2, 2), (1, 1)), OpVersion::new(8, (8, 16), (2, 2), (1, 1))],
    attributes: PriorBoxAttributes::DEFINITIONS,
    build,
};

/// The most items of a list of sizes or ratios: far beyond what models have, and every ratio is compared with the others.
const MOST_ITEMS: usize = 1024;

crate::attributes! {
    /// Attributes of PriorBox.
    pub struct PriorBoxAttributes {
        /// The smaller sizes of boxes, in pixels.
        min_size: Vec<f32> = "min_size", default "";
        /// The larger sizes of boxes, in pixels.
        max_size: Vec<f32> = "max_size", default "";
        /// The ratios of width to height; 1 is always one of them.
        aspect_ratio: Vec<f32> = "aspect_ratio", default "";
        /// How many boxes of a fixed size there are along each axis.
        density: Vec<f32> = "density", default "";
        /// The ratios of boxes of fixed sizes.
        fixed_ratio: Vec<f32> = "fixed_ratio", default "";
        /// The fixed sizes of boxes, in pixels.
        fixed_size: Vec<f32> = "fixed_size", default "";
        /// Whether boxes are cut to the image.
        clip: bool = "clip", default "false";
        /// Whether every ratio is used the other way round too.
        flip: bool = "flip", default "false";
        /// The distance between cells, in pixels; 0 divides the image.
        step: f32 = "step", default "0";
        /// Where in a cell its boxes are centred.
        offset: f32 = "offset", required true;
        /// The variances: none, one or four.
        variance: Vec<f32> = "variance", default "";
        /// Whether every smaller size has boxes of all ratios.
        scale_all_sizes: bool = "scale_all_sizes", default "true";
        /// Whether the box of `max_size` comes before those of the ratios.
        min_max_aspect_ratios_order: bool = "min_max_aspect_ratios_order", default "true", since 8;
    }
}

/// A PriorBox layer.
#[derive(Debug)]
pub struct PriorBox {
    /// The attributes.
    pub attributes: PriorBoxAttributes,
    /// The class version.
    pub class_version: u8,
}

/// A box relative to the centre of its cell: half sizes, and how it is cut.
#[derive(Debug, Clone, Copy)]
struct CellBox {
    shift_x: f32,
    shift_y: f32,
    half_width: f32,
    half_height: f32,
    is_cut: bool,
}

impl PriorBox {
    /// The ratios, with 1 first and without repetitions.
    fn ratios(&self) -> Vec<f32> {
        let mut ratios = vec![1.0f32];
        for ratio in &self.attributes.aspect_ratio {
            if ratios.iter().any(|r| (r - ratio).abs() < 1e-6) {
                continue;
            }
            ratios.push(*ratio);
            if self.attributes.flip {
                ratios.push(1.0 / ratio);
            }
        }
        ratios
    }

    /// The boxes of a cell of an image of the given height.
    fn cell(&self, image_height: f32) -> Vec<CellBox> {
        let mut boxes = Vec::new();
        let ratios = self.ratios();
        for (i, size) in self.attributes.fixed_size.iter().enumerate() {
            self.add_fixed(&mut boxes, i, *size, &ratios);
        }
        let scale = if self.attributes.scale_all_sizes { 1.0 } else { image_height };
        let sizes: Vec<f32> = self.attributes.min_size.iter().map(|size| size * scale).collect();
        let centred = |half_width: f32, half_height: f32| CellBox {
            shift_x: 0.0,
            shift_y: 0.0,
            half_width,
            half_height,
            is_cut: false,
        };
        for (i, size) in sizes.iter().enumerate() {
            boxes.push(centred(size * 0.5, size * 0.5));
            let larger = self.attributes.max_size.get(i).map(|max| (size * max).sqrt() * 0.5);
            let larger = larger.map(|half| centred(half, half));
            if self.attributes.min_max_aspect_ratios_order {
                boxes.extend(larger);
            }
            if self.attributes.scale_all_sizes || i + 1 == sizes.len() {
                let base = if self.attributes.scale_all_sizes { *size } else { sizes[0] };
                for ratio in ratios.iter().filter(|r| (*r - 1.0).abs() >= 1e-6) {
                    let root = ratio.sqrt();
                    boxes.push(centred(base * 0.5 * root, base * 0.5 / root));
                }
            }
            if !self.attributes.min_max_aspect_ratios_order {
                boxes.extend(larger);
            }
        }
        boxes
    }

    /// The boxes of one fixed size: a grid for every ratio.
    fn add_fixed(&self, boxes: &mut Vec<CellBox>, index: usize, size: f32, ratios: &[f32]) {
        let whole = size.trunc();
        let density = self.density(index);
        let step = (size / density as f32).trunc();
        let mut add = |half_width: f32, half_height: f32| {
            for row in 0..density {
                for column in 0..density {
                    let shift = |i: usize| -(whole / 2.0).floor() + step / 2.0 + i as f32 * step;
                    let (shift_x, shift_y) = (shift(column), shift(row));
                    boxes.push(CellBox { shift_x, shift_y, half_width, half_height, is_cut: true });
                }
            }
        };
        if !self.attributes.fixed_ratio.is_empty() {
            for root in self.attributes.fixed_ratio.iter().map(|r| r.sqrt()) {
                add(size * 0.5 * root, size * 0.5 / root);
            }
            return;
        }
        if !self.attributes.density.is_empty() {
            add(whole * 0.5, whole * 0.5);
        }
        for root in ratios.iter().filter(|r| (*r - 1.0).abs() >= 1e-6).map(|r| r.sqrt()) {
            add(size * 0.5 * root, size * 0.5 / root);
        }
    }

    /// The number of boxes of a cell: of densities it is known without making them.
    pub fn boxes_of_cell(&self) -> usize {
        let others = self.ratios().iter().filter(|r| (*r - 1.0).abs() >= 1e-6).count();
        let a = &self.attributes;
        let grids = match (a.fixed_ratio.len(), a.density.is_empty()) {
            (0, true) => others,
            (0, false) => others + 1,
            (ratios, _) => ratios,
        };
        let fixed = (0..a.fixed_size.len()).fold(0usize, |sum, i| {
            let density = self.density(i);
            sum.saturating_add(density.saturating_mul(density).saturating_mul(grids))
        });
        let sizes = a.min_size.len();
        let with_ratios = if a.scale_all_sizes { sizes } else { sizes.min(1) };
        fixed.saturating_add(sizes + sizes.min(a.max_size.len()) + with_ratios * others)
    }

    /// How many boxes of a fixed size there are along each axis.
    fn density(&self, index: usize) -> usize {
        self.attributes.density.get(index).copied().unwrap_or(1.0) as usize
    }
}

impl Operation for PriorBox {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_priors(context, self.boxes_of_cell())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (height, width) = height_and_width(context, 0)?;
        let (image_height, image_width) = height_and_width(context, 1)?;
        let count = self.boxes_of_cell().saturating_mul(4).saturating_mul(height).saturating_mul(width);
        let shape = Shape::from([2, count]);
        context.output(0, &shape)?;
        let mut step = self.attributes.step;
        if !self.attributes.scale_all_sizes {
            step = if step == -1.0 { image_height as f32 / height as f32 } else { step * image_height as f32 };
        }
        let (across, down) = (1.0 / image_width as f32, 1.0 / image_height as f32);
        let center = |i: usize, image: usize, cells: usize| match step == 0.0 {
            true => (i as f32 + 0.5) * (image as f32 / cells as f32),
            false => (self.attributes.offset + i as f32) * step,
        };
        // Without boxes there may be any number of cells, and nothing to do in them.
        if count == 0 {
            return Ok(());
        }
        let cell = self.cell(image_height as f32);
        let mut output = context.output(0, &shape)?;
        let (boxes, variances) = output.slice_mut::<f32>()?.split_at_mut(count);
        let mut boxes = boxes.as_chunks_mut::<4>().0.iter_mut();
        for i in 0..height {
            let y = center(i, image_height, height);
            for x in (0..width).map(|i| center(i, image_width, width)) {
                for (b, target) in cell.iter().zip(&mut boxes) {
                    let (x, y) = (x + b.shift_x, y + b.shift_y);
                    let [left, top] = [(x - b.half_width) * across, (y - b.half_height) * down];
                    let [right, bottom] = [(x + b.half_width) * across, (y + b.half_height) * down];
                    let cut = match b.is_cut {
                        true => [left.max(0.0), top.max(0.0), right.min(1.0), bottom.min(1.0)],
                        false => [left, top, right, bottom],
                    };
                    *target = if self.attributes.clip { cut.map(|corner| corner.clamp(0.0, 1.0)) } else { cut };
                }
            }
        }
        let four = [0, 1, 2, 3].map(|i| variance(&self.attributes.variance, i) as f32);
        variances.as_chunks_mut::<4>().0.fill(four);
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = PriorBoxAttributes::read(context.attributes);
    if !matches!(attributes.variance.len(), 0 | 1 | 4) {
        let message = format!("`variance` has {} items; it must have 0, 1 or 4", attributes.variance.len());
        context.attributes.report(OpError::attribute("variance", message));
    }
    let lists = [
        ("min_size", &attributes.min_size),
        ("max_size", &attributes.max_size),
        ("aspect_ratio", &attributes.aspect_ratio),
        ("density", &attributes.density),
        ("fixed_ratio", &attributes.fixed_ratio),
        ("fixed_size", &attributes.fixed_size),
    ];
    if let Some((name, list)) = lists.into_iter().find(|(_, list)| list.len() > MOST_ITEMS) {
        let message = format!("`{name}` has {} items; it may have {MOST_ITEMS}", list.len());
        context.attributes.report(OpError::attribute(name, message));
    }
    // A grid of boxes for every density: far beyond what models have, and it keeps a damaged number harmless.
    if let Some(density) = attributes.density.iter().find(|d| !(**d >= 1.0 && **d <= 1024.0)) {
        let message = format!("item {density} of `density` is out of range [1, 1024]");
        context.attributes.report(OpError::attribute("density", message));
    }
    Arc::new(PriorBox { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use super::{PriorBox, PriorBoxAttributes};
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("PriorBox", "opset8").attribute("offset", "0.5").attribute("min_size", "4")
    }

    #[test]
    fn every_ratio_has_a_box() {
        let flipped = case().attribute("aspect_ratio", "2").attribute("flip", "true").attribute("max_size", "9");
        assert_eq!(flipped.infer(&["i64[2]=24,42", "i64[2]=384,672"]), ["f32[2,16128]"]);
        assert_eq!(case().infer(&["i64[2]=2..3,5", "i64[2]"]), ["f32[2,40..60]"]);
        assert_eq!(case().infer(&["i64[2]", "i64[2]"]), ["f32[2,?]"]);
    }

    #[test]
    fn boxes_are_counted_without_being_made() {
        for (sizes, ratios, densities, fixed) in
            [(1, 0, 0, 0), (2, 3, 0, 0), (0, 2, 2, 0), (0, 2, 0, 0), (1, 2, 3, 2), (3, 1, 1, 1)]
        {
            for scale_all_sizes in [true, false] {
                let list = |count: usize| (0..count).map(|i| i as f32 + 2.0).collect::<Vec<_>>();
                let attributes = PriorBoxAttributes {
                    min_size: list(sizes),
                    max_size: list(1),
                    aspect_ratio: list(ratios),
                    density: list(densities),
                    fixed_ratio: list(fixed),
                    fixed_size: list(if sizes == 1 { 3 } else { 2 }),
                    flip: ratios == 2,
                    scale_all_sizes,
                    ..PriorBoxAttributes::default()
                };
                let layer = PriorBox { attributes, class_version: 8 };
                assert_eq!(layer.cell(1.0).len(), layer.boxes_of_cell(), "{:?}", layer.attributes);
            }
        }
    }

    #[test]
    fn hostile_lists_take_no_memory() {
        let text = |item: &str, count: usize| vec![item; count].join(",");
        let dense = case().attribute("fixed_size", &text("9", 1024)).attribute("density", &text("1024", 1024));
        assert_eq!(dense.infer(&["i64[2]=0,0", "i64[2]=8,8"]), ["f32[2,0]"]);
        let error = case().attribute("aspect_ratio", &text("2", 1025)).attribute_errors(2).concat();
        assert!(error.contains("`aspect_ratio` has 1025 items; it may have 1024"), "{error}");
    }

    #[test]
    fn boxes_are_centred_in_cells() {
        let inputs = [tensor(&[1i32, 2], [2]), tensor(&[8i32, 16], [2])];
        let output = case().attribute("variance", "0.5").run(&inputs).unwrap();
        let expected = [0.125f32, 0.25, 0.375, 0.75, 0.625, 0.25, 0.875, 0.75];
        assert_eq!(output[0].slice::<f32>().unwrap()[..8], expected);
        assert_eq!(output[0].slice::<f32>().unwrap()[8..], [0.5f32; 8]);
    }
}
