//! Images as inputs: decoding, resizing, channel order, mean and scale, layout.

use std::io::Cursor;

use image::{DynamicImage, ImageReader};
use ovir::{ElementType, Model, PartialShape, Port, Shape, Tensor, TensorError, bf16, f16};

use crate::failure::Failure;
use crate::named_lists;

/// The most elements of an input that is made from an image; larger ones are a mistake in a shape.
const MAX_ELEMENTS: usize = 1 << 30;

/// What is done with images.
#[derive(Debug, Default, Clone, clap::Args)]
pub struct ImageOptions {
    /// Subtracted from the values (0..255) of each channel of the model: one number or one a channel [default: from the
    /// model].
    #[arg(help_heading = "Images", long = "mean_values", value_name = "[NAME][R,G,B]", alias = "mean_value")]
    mean_values: Option<String>,
    /// What the values are divided by after that [default: from the model].
    #[arg(help_heading = "Images", long = "scale_values", value_name = "[NAME][R,G,B]", alias = "scale_value")]
    scale_values: Option<String>,
    /// Gives the channels in the order blue, green, red; images are red, green, blue [default: from the model].
    #[arg(help_heading = "Images", long = "reverse_input_channels", value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean)]
    reverse_input_channels: Option<bool>,
    /// The layout of the input, such as NCHW or NAME[NHWC] [default: from the model, else guessed].
    #[arg(help_heading = "Images", long, value_name = "LAYOUT")]
    layout: Option<String>,
}

/// What is done with images for one input.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageSettings {
    mean: Vec<f32>,
    scale: Vec<f32>,
    is_reversed: bool,
    layout: Option<Vec<char>>,
    resize_type: ResizeType,
    /// Which of these the model says.
    is_from_model: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ResizeType {
    #[default]
    Stretch,
    /// Keeps the proportions; the rest is black at the right and bottom.
    Fit,
    /// Keeps the proportions; the image is in the middle.
    Letterbox,
    /// Keeps the proportions; what is too much is cut off.
    Crop,
}

/// An image as numbers: channels last.
struct Pixels {
    height: usize,
    width: usize,
    channels: usize,
    values: Vec<f32>,
}

impl ImageOptions {
    /// The settings of every input.
    ///
    /// # Errors
    /// Lists that cannot be read, and unknown inputs.
    pub fn settings(&self, model: &Model) -> Result<Vec<ImageSettings>, Failure> {
        let from_model = model.preprocessing();
        let resize_type = match from_model.resize_type.as_str() {
            "fit_to_window" => ResizeType::Fit,
            "fit_to_window_letterbox" => ResizeType::Letterbox,
            "crop" => ResizeType::Crop,
            _ => ResizeType::Stretch,
        };
        let is_from_model = !from_model.mean_values.is_empty() || !from_model.scale_values.is_empty();
        let usual = ImageSettings {
            mean: from_model.mean_values,
            scale: from_model.scale_values,
            is_reversed: self.reverse_input_channels.unwrap_or(from_model.reverse_input_channels),
            layout: None,
            resize_type,
            is_from_model,
        };
        let mut settings = vec![usual; model.inputs().len()];
        for (setting, port) in settings.iter_mut().zip(model.inputs()) {
            setting.layout = port.layout.as_deref().and_then(parse_layout);
        }
        self.apply_mean(model, &mut settings)?;
        self.apply_scale(model, &mut settings)?;
        self.apply_layout(model, &mut settings)?;
        Ok(settings)
    }

    fn apply_mean(&self, model: &Model, settings: &mut [ImageSettings]) -> Result<(), Failure> {
        for (index, values) in numbers(model, self.mean_values.as_deref(), "--mean_values")? {
            for setting in selected(settings, index) {
                setting.mean = values.clone();
                setting.is_from_model = false;
            }
        }
        Ok(())
    }

    fn apply_scale(&self, model: &Model, settings: &mut [ImageSettings]) -> Result<(), Failure> {
        for (index, values) in numbers(model, self.scale_values.as_deref(), "--scale_values")? {
            if values.contains(&0.0) {
                return Err(Failure::usage("--scale_values holds a 0, by which nothing can be divided"));
            }
            for setting in selected(settings, index) {
                setting.scale = values.clone();
                setting.is_from_model = false;
            }
        }
        Ok(())
    }

    fn apply_layout(&self, model: &Model, settings: &mut [ImageSettings]) -> Result<(), Failure> {
        let Some(text) = self.layout.as_deref() else { return Ok(()) };
        let brackets = text.replace('(', "[").replace(')', "]");
        let entries = match brackets.contains('[') {
            true => named_lists::split(&brackets, "--layout")?,
            false => vec![(String::new(), brackets)],
        };
        for (name, letters) in entries {
            let layout = parse_layout(&letters)
                .ok_or_else(|| Failure::usage(format!("--layout \"{text}\" is no layout; write NCHW or NAME[NHWC]")))?;
            let index = if name.is_empty() { None } else { Some(model.input_index(&name)?) };
            for setting in selected(settings, index) {
                setting.layout = Some(layout.clone());
            }
        }
        Ok(())
    }
}

impl ImageSettings {
    /// The tensor for an input from the bytes of an image file, and what was done in words.
    ///
    /// # Errors
    /// When the bytes are no image, or the input cannot be filled with one.
    pub fn apply(&self, bytes: &[u8], port: &Port) -> Result<(Tensor, String), Failure> {
        let image = decode(bytes)?;
        let (layout, is_guessed) = self.layout_of(port)?;
        let geometry = Geometry::new(&layout, port, (image.height() as usize, image.width() as usize))?;
        let mut steps = vec![format!("{}x{} {}", image.width(), image.height(), colours(&image))];
        let mut pixels = to_pixels(&image, geometry.channels)?;
        if pixels.channels == 1 && image.color().has_color() {
            steps.push("made grey".to_owned());
        }
        if (pixels.height, pixels.width) != (geometry.height, geometry.width) {
            pixels = self.resize(&pixels, &geometry)?;
            let how = match self.resize_type {
                ResizeType::Stretch => "resized",
                ResizeType::Fit => "fitted into the window",
                ResizeType::Letterbox => "fitted with borders",
                ResizeType::Crop => "resized and cropped",
            };
            steps.push(format!("{how} to {}x{} (bilinear)", geometry.width, geometry.height));
        }
        if pixels.channels >= 3 {
            if self.is_reversed {
                pixels.values.chunks_exact_mut(pixels.channels).for_each(|pixel| pixel.swap(0, 2));
            }
            steps.push(format!("channels {}", if self.is_reversed { "BGR" } else { "RGB" }));
        }
        self.normalise(&mut pixels, port, &mut steps)?;
        let tensor = geometry.tensor(&pixels, port.element_type)?;
        if geometry.batch > 1 {
            steps.push(format!("repeated {} times", geometry.batch));
        }
        let letters: String = layout.iter().collect();
        let guess = if is_guessed { ", guessed" } else { "" };
        let shown = format!("layout {letters}{guess}, as {}{}", tensor.element_type(), tensor.shape());
        steps.push(shown);
        Ok((tensor, format!("input \"{}\" from an image: {}", port.name, steps.join("; "))))
    }

    /// The layout of an input, and whether it had to be guessed.
    fn layout_of(&self, port: &Port) -> Result<(Vec<char>, bool), Failure> {
        let Port { name, shape, .. } = port;
        let rank = shape.rank();
        if let Some(layout) = &self.layout {
            if rank.is_some_and(|rank| rank != layout.len()) {
                let letters: String = layout.iter().collect();
                let message = format!("layout {letters} does not fit input \"{name}\" of shape {shape}");
                return Err(Failure::usage(message));
            }
            return Ok((layout.clone(), false));
        }
        let is_channels = |index: usize| matches!(shape.dim(index).get(), Some(1 | 3 | 4));
        let guess = match rank {
            Some(4) if is_channels(1) => "NCHW",
            Some(4) if is_channels(3) => "NHWC",
            Some(3) if is_channels(0) => "CHW",
            Some(3) if is_channels(2) => "HWC",
            Some(2) => "HW",
            _ => {
                return Err(Failure::usage(format!(
                    "input \"{name}\" of shape {shape} does not look like an image; say its layout with --layout"
                )));
            }
        };
        Ok((guess.chars().collect(), true))
    }

    fn resize(&self, pixels: &Pixels, geometry: &Geometry) -> Result<Pixels, Failure> {
        let (height, width) = (geometry.height, geometry.width);
        let ratios = (height as f64 / pixels.height as f64, width as f64 / pixels.width as f64);
        let ratio = match self.resize_type {
            ResizeType::Stretch => return bilinear(pixels, height, width),
            ResizeType::Fit | ResizeType::Letterbox => ratios.0.min(ratios.1),
            ResizeType::Crop => ratios.0.max(ratios.1),
        };
        let scaled = |size: usize| ((size as f64 * ratio).round() as usize).max(1);
        let resized = bilinear(pixels, scaled(pixels.height), scaled(pixels.width))?;
        let is_centred = self.resize_type != ResizeType::Fit;
        Ok(place(&resized, height, width, is_centred))
    }

    fn normalise(&self, pixels: &mut Pixels, port: &Port, steps: &mut Vec<String>) -> Result<(), Failure> {
        let channels = pixels.channels;
        for (values, what) in [(&self.mean, "mean"), (&self.scale, "scale")] {
            if values.len() > 1 && values.len() != channels {
                return Err(Failure::usage(format!(
                    "{} {what} values are given for the {channels} channels of input \"{}\"",
                    values.len(),
                    port.name
                )));
            }
        }
        if self.mean.is_empty() && self.scale.is_empty() {
            return Ok(());
        }
        let of = |values: &[f32], channel: usize, usual: f32| {
            values.get(if values.len() == 1 { 0 } else { channel }).copied().unwrap_or(usual)
        };
        for pixel in pixels.values.chunks_exact_mut(channels.max(1)) {
            for (channel, value) in pixel.iter_mut().enumerate() {
                *value = (*value - of(&self.mean, channel, 0.0)) / of(&self.scale, channel, 1.0);
            }
        }
        let shown = |values: &[f32]| values.iter().map(f32::to_string).collect::<Vec<_>>().join(",");
        let source = if self.is_from_model { " (from the model)" } else { "" };
        let step = match (self.mean.is_empty(), self.scale.is_empty()) {
            (false, false) => format!("(x - [{}]) / [{}]", shown(&self.mean), shown(&self.scale)),
            (false, true) => format!("x - [{}]", shown(&self.mean)),
            _ => format!("x / [{}]", shown(&self.scale)),
        };
        steps.push(format!("{step}{source}"));
        Ok(())
    }
}

/// Where the pixels go.
struct Geometry {
    layout: Vec<char>,
    sizes: Vec<usize>,
    batch: usize,
    channels: usize,
    height: usize,
    width: usize,
}

impl Geometry {
    /// Height and width that the input leaves open are those of the image.
    fn new(layout: &[char], port: &Port, image: (usize, usize)) -> Result<Geometry, Failure> {
        let shape = match port.shape.rank() {
            Some(_) => port.shape.clone(),
            None => PartialShape::of_rank(layout.len()),
        };
        let mut geometry =
            Geometry { layout: layout.to_vec(), sizes: Vec::new(), batch: 1, channels: 1, height: 0, width: 0 };
        for (index, letter) in layout.iter().enumerate() {
            let dim = shape.dim(index);
            let nearest = |size: usize| {
                let size = i64::try_from(size).unwrap_or(i64::MAX).clamp(dim.min(), dim.max());
                usize::try_from(size).unwrap_or(usize::MAX)
            };
            let size = match letter {
                'H' => nearest(image.0),
                'W' => nearest(image.1),
                'C' => nearest(3),
                _ => nearest(1),
            };
            match letter {
                'H' => geometry.height = size,
                'W' => geometry.width = size,
                'C' => geometry.channels = size,
                'N' => geometry.batch = size,
                _ if size == 1 => {}
                _ => {
                    let message = format!("dimension {letter} of input \"{}\" is {size}; an image has 1", port.name);
                    return Err(Failure::usage(message));
                }
            }
            geometry.sizes.push(size);
        }
        let elements = Shape::from_slice(&geometry.sizes).checked_elements();
        if geometry.height == 0 || geometry.width == 0 || elements.is_none_or(|count| count > MAX_ELEMENTS) {
            let message = format!("input \"{}\" of shape {} cannot be filled with an image", port.name, port.shape);
            return Err(Failure::usage(message));
        }
        Ok(geometry)
    }

    /// The pixels in the order of the layout.
    fn tensor(&self, pixels: &Pixels, element_type: ElementType) -> Result<Tensor, Failure> {
        let strides: Vec<usize> = self
            .layout
            .iter()
            .map(|letter| match letter {
                'H' => pixels.width * pixels.channels,
                'W' => pixels.channels,
                'C' => 1,
                _ => 0,
            })
            .collect();
        let count: usize = self.sizes.iter().product();
        let mut values = Vec::with_capacity(count);
        let mut position = vec![0usize; self.sizes.len()];
        for _ in 0..count {
            let offset: usize = position.iter().zip(&strides).map(|(p, s)| p * s).sum();
            values.push(pixels.values[offset]);
            for (place, size) in position.iter_mut().zip(&self.sizes).rev() {
                *place += 1;
                if *place < *size {
                    break;
                }
                *place = 0;
            }
        }
        let sizes = Shape::from_slice(&self.sizes);
        typed(&values, sizes, element_type)?
            .ok_or_else(|| Failure::usage(format!("an input of {element_type} cannot be filled with an image")))
    }
}

/// The values in an element type: integers are rounded and clamped to their range.
fn typed(values: &[f32], shape: Shape, element_type: ElementType) -> Result<Option<Tensor>, TensorError> {
    macro_rules! integers {
        ($type:ty) => {
            Tensor::from_slice(&values.iter().map(|v| v.round_ties_even() as $type).collect::<Vec<_>>(), shape)
        };
    }
    let tensor = match element_type {
        ElementType::F32 | ElementType::Dynamic => Tensor::from_slice(values, shape),
        ElementType::F16 => Tensor::from_slice(&values.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>(), shape),
        ElementType::Bf16 => Tensor::from_slice(&values.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>(), shape),
        ElementType::F64 => Tensor::from_slice(&values.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), shape),
        ElementType::U8 => integers!(u8),
        ElementType::I8 => integers!(i8),
        ElementType::U16 => integers!(u16),
        ElementType::I16 => integers!(i16),
        ElementType::U32 => integers!(u32),
        ElementType::I32 => integers!(i32),
        ElementType::U64 => integers!(u64),
        ElementType::I64 => integers!(i64),
        _ => return Ok(None),
    };
    tensor.map(Some)
}

fn selected(settings: &mut [ImageSettings], index: Option<usize>) -> impl Iterator<Item = &mut ImageSettings> {
    settings.iter_mut().enumerate().filter(move |(i, _)| index.is_none_or(|index| *i == index)).map(|(_, s)| s)
}

/// Numbers a channel, each list for one input or, without an index, for all.
type InputNumbers = Vec<(Option<usize>, Vec<f32>)>;

/// Lists of numbers, each for one input or for all.
fn numbers(model: &Model, text: Option<&str>, flag: &str) -> Result<InputNumbers, Failure> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let brackets = text.replace('(', "[").replace(')', "]");
    let brackets = if brackets.contains('[') { brackets } else { format!("[{brackets}]") };
    let mut lists = Vec::new();
    for (name, list) in named_lists::split(&brackets, flag)? {
        let index = if name.is_empty() { None } else { Some(model.input_index(&name)?) };
        let values: Option<Vec<f32>> =
            list.split(',').map(|v| v.trim().parse().ok().filter(|v: &f32| v.is_finite())).collect();
        let values = values.ok_or_else(|| Failure::usage(format!("{flag} \"{text}\" holds what is no number")))?;
        lists.push((index, values));
    }
    Ok(lists)
}

/// The letters of `NCHW` or `[N,C,H,W]`.
fn parse_layout(text: &str) -> Option<Vec<char>> {
    let letters: Vec<char> =
        text.chars().filter(|c| !matches!(c, '[' | ']' | ',' | ' ')).map(|c| c.to_ascii_uppercase()).collect();
    let is_layout = letters.iter().all(|c| c.is_ascii_alphabetic() || *c == '?');
    let has = |letter: char| letters.iter().filter(|c| **c == letter).count();
    (is_layout && has('H') == 1 && has('W') == 1 && has('C') <= 1 && has('N') <= 1).then_some(letters)
}

fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

fn decode(bytes: &[u8]) -> Result<DynamicImage, Failure> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
    let reader = reader.map_err(|error| Failure::usage(error.to_string()))?;
    reader.decode().map_err(|error| Failure::usage(format!("the image cannot be read: {error}")))
}

fn colours(image: &DynamicImage) -> &'static str {
    match (image.color().has_color(), image.color().has_alpha()) {
        (true, true) => "RGBA",
        (true, false) => "RGB",
        (false, true) => "grey with alpha",
        (false, false) => "grey",
    }
}

/// The image as numbers 0..255 in 1, 3 or 4 channels.
fn to_pixels(image: &DynamicImage, channels: usize) -> Result<Pixels, Failure> {
    let (height, width) = (image.height() as usize, image.width() as usize);
    let values = match channels {
        1 if image.color().has_color() => image.to_rgb8().pixels().map(|p| grey(p.0)).collect(),
        1 => image.to_luma8().into_raw().into_iter().map(f32::from).collect(),
        3 => image.to_rgb8().into_raw().into_iter().map(f32::from).collect(),
        4 => image.to_rgba8().into_raw().into_iter().map(f32::from).collect(),
        _ => return Err(Failure::usage(format!("the input has {channels} channels, an image has 1, 3 or 4"))),
    };
    Ok(Pixels { height, width, channels, values })
}

/// The luma of ITU-R BT.601, rounded to 8 bits as other image libraries do.
fn grey([red, green, blue]: [u8; 3]) -> f32 {
    let sum = 299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue);
    ((sum + 500) / 1000) as f32
}

/// Bilinear interpolation with half-pixel centres and without antialiasing, as OpenCV's INTER_LINEAR.
fn bilinear(pixels: &Pixels, height: usize, width: usize) -> Result<Pixels, Failure> {
    let channels = pixels.channels;
    let count = height.checked_mul(width).and_then(|n| n.checked_mul(channels)).filter(|n| *n <= MAX_ELEMENTS);
    let count = count.ok_or_else(|| Failure::usage(format!("an image of {width}x{height} is too large")))?;
    let rows: Vec<_> = (0..height).map(|y| neighbours(y, height, pixels.height)).collect();
    let columns: Vec<_> = (0..width).map(|x| neighbours(x, width, pixels.width)).collect();
    let mut values = Vec::with_capacity(count);
    let at = |y: usize, x: usize, channel: usize| pixels.values[(y * pixels.width + x) * channels + channel];
    for (y0, y1, fy) in &rows {
        for (x0, x1, fx) in &columns {
            for channel in 0..channels {
                let top = at(*y0, *x0, channel) * (1.0 - fx) + at(*y0, *x1, channel) * fx;
                let bottom = at(*y1, *x0, channel) * (1.0 - fx) + at(*y1, *x1, channel) * fx;
                values.push(top * (1.0 - fy) + bottom * fy);
            }
        }
    }
    Ok(Pixels { height, width, channels, values })
}

/// The two source positions around a target position, and the weight of the second.
fn neighbours(target: usize, targets: usize, sources: usize) -> (usize, usize, f32) {
    let position = (target as f64 + 0.5) * sources as f64 / targets as f64 - 0.5;
    let position = position.clamp(0.0, (sources - 1) as f64);
    let low = position.floor() as usize;
    (low, (low + 1).min(sources - 1), (position - low as f64) as f32)
}

/// The image in a black window of the given size: borders where it is smaller, cut where it is larger.
fn place(pixels: &Pixels, height: usize, width: usize, is_centred: bool) -> Pixels {
    let channels = pixels.channels;
    let start = |window: usize, size: usize| match is_centred {
        true => (window.saturating_sub(size) / 2, size.saturating_sub(window) / 2),
        false => (0, 0),
    };
    let ((top, skipped_rows), (left, skipped_columns)) = (start(height, pixels.height), start(width, pixels.width));
    let length = width.min(pixels.width) * channels;
    let mut values = vec![0.0; height * width * channels];
    for row in 0..height.min(pixels.height) {
        let source = ((row + skipped_rows) * pixels.width + skipped_columns) * channels;
        let target = ((row + top) * width + left) * channels;
        values[target..target + length].copy_from_slice(&pixels.values[source..source + length]);
    }
    Pixels { height, width, channels, values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn port(element_type: ElementType, shape: &str) -> Port {
        let shape = shape.parse().unwrap();
        Port { name: "x".to_owned(), names: Vec::new(), element_type, shape, layout: None }
    }

    fn png(width: u32, height: u32, rgb: &[u8]) -> Vec<u8> {
        let image = image::RgbImage::from_raw(width, height, rgb.to_vec()).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn layouts_and_channel_orders() {
        let bytes = png(2, 1, &[1, 2, 3, 4, 5, 6]);
        let settings = ImageSettings { is_reversed: true, ..ImageSettings::default() };
        let (tensor, steps) = settings.apply(&bytes, &port(ElementType::U8, "1,3,1,2")).unwrap();
        assert_eq!(tensor.slice::<u8>().unwrap(), [3, 6, 2, 5, 1, 4]);
        assert_eq!(steps, "input \"x\" from an image: 2x1 RGB; channels BGR; layout NCHW, guessed, as u8[1,3,1,2]");
        let settings = ImageSettings { mean: vec![1.0], scale: vec![1.0, 2.0, 4.0], ..ImageSettings::default() };
        let (tensor, _) = settings.apply(&bytes, &port(ElementType::F32, "2,?,?,3")).unwrap();
        assert_eq!(tensor.shape(), &Shape::from([2, 1, 2, 3]));
        assert_eq!(tensor.slice::<f32>().unwrap()[..6], [0.0, 0.5, 0.5, 3.0, 2.0, 1.25]);
    }

    #[test]
    fn bilinear_has_half_pixel_centres() {
        let pixels = Pixels { height: 1, width: 2, channels: 1, values: vec![0.0, 4.0] };
        assert_eq!(bilinear(&pixels, 1, 4).unwrap().values, [0.0, 1.0, 3.0, 4.0]);
        assert_eq!(bilinear(&pixels, 1, 1).unwrap().values, [2.0]);
    }

    #[test]
    fn windows_are_filled_or_cut() {
        let pixels = Pixels { height: 1, width: 2, channels: 1, values: vec![1.0, 2.0] };
        assert_eq!(place(&pixels, 3, 2, true).values, [0.0, 0.0, 1.0, 2.0, 0.0, 0.0]);
        assert_eq!(place(&pixels, 2, 2, false).values, [1.0, 2.0, 0.0, 0.0]);
        assert_eq!(place(&pixels, 1, 1, true).values, [1.0]);
    }

    #[test]
    fn inputs_that_are_no_images_are_refused() {
        let bytes = png(1, 1, &[1, 2, 3]);
        for shape in ["1,5,2,2", "7", "...", "1,3,0,2", "1,3,99999999,99999999"] {
            assert!(ImageSettings::default().apply(&bytes, &port(ElementType::F32, shape)).is_err(), "{shape}");
        }
        let settings = ImageSettings { mean: vec![1.0, 2.0], ..ImageSettings::default() };
        assert!(settings.apply(&bytes, &port(ElementType::F32, "1,3,1,1")).is_err());
        assert!(ImageSettings::default().apply(b"\x89PNG", &port(ElementType::F32, "1,3,1,1")).is_err());
    }

    #[test]
    fn layouts_are_read() {
        assert_eq!(parse_layout("[N,C,H,W]"), Some(vec!['N', 'C', 'H', 'W']));
        assert_eq!(parse_layout("nhwc"), Some(vec!['N', 'H', 'W', 'C']));
        assert_eq!(parse_layout("NC"), None);
        assert_eq!(parse_layout("NCHW->NHWC"), None);
    }
}
