//! # DeformableConvolution
//! A 2D convolution whose windows are bent by offsets, and weighted by a mask.
//!
//! Specification: `convolution/deformable-convolution-1`, `convolution/deformable-convolution-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[N, C, H, W]` |
//! | in 1 | offsets | that of `data` | `[N, deformable_group * kernel * 2, H_out, W_out]`: y and x in turn |
//! | in 2 | filter | that of `data` | `[outputs, C / group, kernel height, kernel width]` |
//! | in 3 | mask (since 8, optional) | that of `data` | `[N, deformable_group * kernel, H_out, W_out]` |
//! | out 0 | | that of `data` | `[N, outputs, H_out, W_out]` |
//!
//! Version 8 adds the mask and `bilinear_interpolation_pad`: whether elements just outside of the data are zeros that take
//! part in the interpolation, or are not sampled at all. Positions are computed in f32, sums in f64, rounded once.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec};

use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::window::{AutoPad, MAX_WINDOW_NUMBER, RoundingType, WindowAxis, WindowLists};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of DeformableConvolution.
pub static DEFORMABLE_CONVOLUTION: OpDef = OpDef {
    type_name: "DeformableConvolution",
    category: Category::Convolution,
    versions: &[OpVersion::new(1, (1, 7), (3, 3), (1, 1)), OpVersion::new(8, (8, 16), (3, 4), (1, 1))],
    attributes: DeformableConvolutionAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of DeformableConvolution.
    pub struct DeformableConvolutionAttributes {
        /// Whether zeros around the data take part in the interpolation.
        bilinear_interpolation_pad: bool = "bilinear_interpolation_pad", default "false", since 8;
        /// The distance between windows, one item a spatial axis.
        strides: Vec<i64> = "strides", required true;
        /// The distance between the elements of the filter, one item a spatial axis.
        dilations: Vec<i64> = "dilations", required true;
        /// The elements added before the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_begin: Vec<i64> = "pads_begin", required true;
        /// The elements added after the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_end: Vec<i64> = "pads_end", required true;
        /// How pads are found.
        auto_pad: AutoPad = "auto_pad", default "explicit";
        /// The groups of channels.
        group: i64 = "group", default "1";
        /// The groups of channels that share offsets.
        deformable_group: i64 = "deformable_group", default "1";
    }
}

/// A DeformableConvolution layer.
#[derive(Debug)]
pub struct DeformableConvolution {
    /// The attributes.
    pub attributes: DeformableConvolutionAttributes,
    /// The class version.
    pub class_version: u8,
}

/// The sizes of a layer of known shapes.
pub struct Sizes {
    /// Images.
    pub batch: usize,
    /// Channels of the data.
    pub channels: usize,
    /// Channels of the output.
    pub outputs: usize,
    /// The windows along height and width.
    pub axes: SmallVec<[WindowAxis; 3]>,
}

impl DeformableConvolution {
    fn lists(&self) -> WindowLists<'_> {
        let a = &self.attributes;
        WindowLists {
            strides: &a.strides,
            dilations: &a.dilations,
            pads_begin: &a.pads_begin,
            pads_end: &a.pads_end,
            auto_pad: a.auto_pad,
            rounding: RoundingType::Floor,
        }
    }

    /// The sizes for data, offsets and filter of known shapes, and for those of a mask.
    ///
    /// # Errors
    /// A shape does not fit the others.
    pub fn sizes(&self, shapes: [&Shape; 3], mask: Option<&Shape>) -> OpResult<Sizes> {
        let [data, offsets, filter] = shapes;
        let axes = self.lists().geometry(&data[2..], &filter[2..])?;
        let (groups, bent) = (self.attributes.group as usize, self.attributes.deformable_group as usize);
        let kernel = filter[2] * filter[3];
        let channels_fit = filter[1].checked_mul(groups) == Some(data[1])
            && filter[0].is_multiple_of(groups)
            && data[1].is_multiple_of(bent);
        if !channels_fit {
            let message =
                format!("filter {filter} does not fit data {data} in {groups} groups and {bent} deformable ones");
            return Err(OpError::shape(Blame::Input(2), message));
        }
        let windows = [axes[0].output, axes[1].output];
        let fits = |shape: &Shape, factor: usize| {
            shape[0] == data[0] && shape[1] == bent * kernel * factor && shape[2..] == windows
        };
        if !fits(offsets, 2) {
            let wanted = [data[0], bent * kernel * 2, windows[0], windows[1]];
            return Err(OpError::shape(Blame::Input(1), format!("shape {offsets} must be {}", Shape::from(wanted))));
        }
        if let Some(mask) = mask.filter(|mask| !fits(mask, 1)) {
            let wanted = [data[0], bent * kernel, windows[0], windows[1]];
            return Err(OpError::shape(Blame::Input(3), format!("shape {mask} must be {}", Shape::from(wanted))));
        }
        Ok(Sizes { batch: data[0], channels: data[1], outputs: filter[0], axes })
    }

    /// What can be said of channels and offsets where some sizes are unknown.
    fn check_channels(&self, context: &InferContext<'_>, windows: &[Dim]) -> OpResult {
        let (data, filter) = (context.shape(0), context.shape(2));
        for (port, dim, name, groups) in [
            (0, data.dim(1), "group", self.attributes.group),
            (0, data.dim(1), "deformable_group", self.attributes.deformable_group),
            (2, filter.dim(0), "group", self.attributes.group),
        ] {
            if dim.get().is_some_and(|size| size as i64 % groups.max(1) != 0) {
                let message = format!("{dim} channels must be divisible by `{name}`, {groups}");
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        let kernel = Dim::fixed(self.attributes.deformable_group.max(1) as usize) * filter.dim(2) * filter.dim(3);
        for (port, channels) in [(1, kernel * Dim::fixed(2)), (3, kernel)] {
            if port >= context.input_count() {
                continue;
            }
            let shape = context.shape(port);
            let fits = shape.dim(0).compatible(data.dim(0))
                && shape.dim(1).compatible(channels)
                && (0..windows.len()).all(|i| shape.dim(2 + i).compatible(windows[i]));
            if !fits {
                let wanted = [data.dim(0), channels].into_iter().chain(windows.iter().copied());
                let wanted = PartialShape::from_dims(wanted);
                return Err(OpError::shape(Blame::Input(port), format!("shape {shape} must be {wanted}")));
            }
        }
        Ok(())
    }

    /// The value between elements, zero where nothing is sampled.
    fn sample(&self, plane: &[f64], height: usize, width: usize, y: f32, x: f32) -> f64 {
        let inside = |v: f32, size: usize| match self.attributes.bilinear_interpolation_pad {
            true => v > -1.0 && v < size as f32,
            false => v >= 0.0 && v < size as f32,
        };
        if !inside(y, height) || !inside(x, width) {
            return 0.0;
        }
        let last = |size: usize| size as i64 - 1;
        let neighbours = |v: f32, size: usize| {
            let low = v.floor() as i64;
            let high = if self.attributes.bilinear_interpolation_pad { low + 1 } else { (low + 1).min(last(size)) };
            (low, high, f64::from(v - v.floor()))
        };
        let (top, bottom, down) = neighbours(y, height);
        let (left, right, across) = neighbours(x, width);
        let at = |y: i64, x: i64| match y >= 0 && x >= 0 && y <= last(height) && x <= last(width) {
            true => plane[y as usize * width + x as usize],
            false => 0.0,
        };
        let line = |y: i64| at(y, left) * (1.0 - across) + at(y, right) * across;
        line(top) * (1.0 - down) + line(bottom) * down
    }
}

impl Operation for DeformableConvolution {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let ports: SmallVec<[usize; 4]> = (0..context.input_count().min(4)).collect();
        for port in &ports {
            context.require_class(*port, ElementClass::Numeric)?;
            context.require_rank(*port, 4..=4)?;
        }
        let element_type = context.require_same_type(&ports)?;
        let (data, offsets, filter) = (context.shape(0), context.shape(1), context.shape(2));
        let groups = Dim::fixed(self.attributes.group.max(1) as usize);
        if !data.dim(1).compatible(groups * filter.dim(1)) {
            let message =
                format!("the filter of shape {filter} in {groups} groups does not fit {} channels", data.dim(1));
            return Err(OpError::shape(Blame::Input(2), message));
        }
        let sizes = self.lists().infer(context.symbols(), 2, |i| (data.dim(2 + i), filter.dim(2 + i)))?;
        let batch = data.dim(0).merge(offsets.dim(0)).ok_or_else(|| {
            let message = format!("shape {offsets} has batch {}, but input 0 has {}", offsets.dim(0), data.dim(0));
            OpError::shape(Blame::Input(1), message)
        })?;
        self.check_channels(context, &sizes)?;
        let known = |port: usize| context.shape(port).to_shape();
        if let (Some(data), Some(offsets), Some(filter)) = (known(0), known(1), known(2)) {
            self.sizes([&data, &offsets, &filter], known(3).filter(|_| context.input_count() > 3).as_ref())?;
        }
        let dims = [batch, filter.dim(0)].into_iter().chain(sizes);
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shapes = [context.input(0)?.shape(), context.input(1)?.shape(), context.input(2)?.shape()];
        let mask = if context.input_count() > 3 { Some(context.input(3)?) } else { None };
        let sizes = self.sizes(shapes, mask.map(|m| m.shape()))?;
        let (ya, xa) = (sizes.axes[0], sizes.axes[1]);
        let shape = Shape::from([sizes.batch, sizes.outputs, ya.output, xa.output]);
        context.output(0, &shape)?;
        let (data, offsets) = (widened_view(context.input(0)?)?, widened_view(context.input(1)?)?);
        let (filter, mask) = (widened_view(context.input(2)?)?, mask.map(widened_view).transpose()?);
        let mut result = filled::<f64>(shape.elements())?;
        let (plane, windows, kernel) = (ya.input * xa.input, ya.output * xa.output, ya.kernel * xa.kernel);
        let inner = sizes.channels / self.attributes.group as usize;
        let bent = self.attributes.deformable_group as usize;
        for (i, target) in result.iter_mut().enumerate() {
            let (n, o, window) = (i / (sizes.outputs * windows), i / windows % sizes.outputs, i % windows);
            let group = o / (sizes.outputs / self.attributes.group as usize);
            for c in 0..inner {
                let channel = group * inner + c;
                let values = &data[(n * sizes.channels + channel) * plane..][..plane];
                let first = (n * bent + channel / (sizes.channels / bent)) * kernel;
                for k in 0..kernel {
                    let offset = |part: usize| offsets[((first + k) * 2 + part) * windows + window] as f32;
                    let y = ya.position(window / xa.output, k / xa.kernel) as f32 + offset(0);
                    let x = xa.position(window % xa.output, k % xa.kernel) as f32 + offset(1);
                    let weight = mask.as_ref().map_or(1.0, |m| m[(first + k) * windows + window]);
                    let sampled = self.sample(values, ya.input, xa.input, y, x);
                    *target += sampled * filter[(o * inner + c) * kernel + k] * weight;
                }
            }
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = DeformableConvolutionAttributes::read(context.attributes);
    for (name, value) in [("group", attributes.group), ("deformable_group", attributes.deformable_group)] {
        if !(1..=MAX_WINDOW_NUMBER).contains(&value) {
            let message = format!("`{name}` {value} is out of range [1, {MAX_WINDOW_NUMBER}]");
            context.attributes.report(OpError::attribute(name, message));
        }
    }
    let attributes = DeformableConvolutionAttributes {
        group: attributes.group.clamp(1, MAX_WINDOW_NUMBER),
        deformable_group: attributes.deformable_group.clamp(1, MAX_WINDOW_NUMBER),
        ..attributes
    };
    let operation = DeformableConvolution { attributes, class_version: context.class_version };
    operation.lists().check(context.attributes);
    Arc::new(operation)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("DeformableConvolution", "opset8")
            .attribute("strides", "1,1")
            .attribute("dilations", "1,1")
            .attribute("pads_begin", "0,0")
            .attribute("pads_end", "0,0")
    }

    #[test]
    fn offsets_bend_windows() {
        let data = tensor(&[1f32, 2.0, 3.0, 4.0], [1, 1, 2, 2]);
        let offsets = tensor(&[0f32, 0.0, 0.0, 0.0, 0.5, -1.0, 0.0, 1.0], [1, 2, 2, 2]);
        let output = case().run(&[data, offsets, tensor(&[2f32], [1, 1, 1, 1])]).unwrap();
        assert_eq!(output[0], tensor(&[3f32, 2.0, 6.0, 0.0], [1, 1, 2, 2]));
    }

    #[test]
    fn offsets_must_fit() {
        assert_eq!(
            case().infer_error(&["f32[1,4,8,8]", "f32[1,17,6,6]", "f32[2,4,3,3]"]),
            "input 1: shape [1,17,6,6] must be [1,18,6,6]"
        );
        assert_eq!(case().infer(&["f32[?,4,8,8]", "f32[?,18,6,6]", "f32[2,4,3,3]"]), ["f32[?,2,6,6]"]);
    }
}
