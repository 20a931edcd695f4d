//! Constants and the weights file.

use std::ops::Range;

use ovir_diagnostics::{Code, Diagnostic, LayerReference, Span};
use ovir_ir::{Attribute, Layer, Weights};
use ovir_ops::infrastructure::constant::ConstAttributes;
use ovir_tensor::{MAX_BOUNDS_ELEMENTS, Tensor};

/// How a Git LFS pointer begins.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// The most places that one finding shows.
const MAX_PLACES: usize = 4;

/// Reads constants, and collects what is wrong with all of them together.
pub(super) struct Constants<'b> {
    weights: Option<&'b Weights>,
    is_unwanted: bool,
    is_pointer: bool,
    /// Constants that need the weights file that is missing, or lie outside of it.
    outside: Vec<Outside>,
    ranges: Vec<Place>,
}

struct Outside {
    code: Code,
    reference: LayerReference,
    message: String,
    span: Span,
}

/// The bytes of a constant.
struct Place {
    bytes: Range<u64>,
    span: Span,
    reference: LayerReference,
}

impl<'b> Constants<'b> {
    pub(super) fn new(weights: Option<&'b Weights>, is_unwanted: bool) -> Constants<'b> {
        let weights = weights.filter(|w| !w.is_absent());
        let is_pointer = weights.is_some_and(|w| w.bytes(0, POINTER.len() as u64).is_ok_and(|start| start == POINTER));
        Constants { weights, is_unwanted, is_pointer, outside: Vec::new(), ranges: Vec::new() }
    }

    /// The tensor of a constant; `None` if its values are unknown.
    ///
    /// # Errors
    /// If the constant is defective, so that nothing but its declaration can be trusted.
    pub(super) fn read(
        &mut self,
        layer: &Layer<'_>,
        attributes: &ConstAttributes,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<Option<Tensor>, ()> {
        if self.is_unwanted {
            return Ok(None);
        }
        let place = layer.data_span.unwrap_or(layer.span);
        let Some(weights) = self.weights.filter(|_| !self.is_pointer) else {
            let code = if self.is_pointer { Code::GitLfsPointer } else { Code::MissingWeights };
            let message = String::new();
            self.outside.push(Outside { code, reference: layer.reference(), message, span: place });
            return Ok(None);
        };
        match weights.constant(attributes.element_type, &attributes.shape, attributes.offset, attributes.size) {
            Ok(tensor) => {
                self.remember(layer, attributes, &tensor);
                // Shapes, axes and scalars are read directly during inference; large constants stay where they are.
                let tensor = match tensor.elements() <= MAX_BOUNDS_ELEMENTS {
                    true => tensor.aligned().unwrap_or(tensor),
                    false => tensor,
                };
                Ok(Some(tensor))
            }
            Err(error) => {
                let message = format!("{}: {error}", layer.reference());
                let blamed = if error.code() == Code::ConstantSize { "size" } else { "offset" };
                let span = layer.attribute(blamed).map_or(place, Attribute::span);
                let (code, reference) = (error.code(), layer.reference());
                match code {
                    Code::ShortWeights => self.outside.push(Outside { code, reference, message, span }),
                    _ => diagnostics.push(Diagnostic::new(code, message).in_layer(reference).at(span, "")),
                }
                Err(())
            }
        }
    }

    /// Strings have no fixed size, and constants without elements no bytes.
    fn remember(&mut self, layer: &Layer<'_>, attributes: &ConstAttributes, tensor: &Tensor) {
        let end = attributes.offset.saturating_add(attributes.size);
        if tensor.elements() > 0 && end > attributes.offset {
            let span = layer.attribute("offset").map_or(layer.span, Attribute::span);
            self.ranges.push(Place { bytes: attributes.offset..end, span, reference: layer.reference() });
        }
    }

    /// Reports what concerns the weights file as a whole: a truncated or missing file is one defect, however many
    /// constants lie in it.
    pub(super) fn finish(&mut self, diagnostics: &mut Vec<Diagnostic>) {
        self.report_outside(diagnostics);
        self.report_overlaps(diagnostics);
    }

    fn report_outside(&self, diagnostics: &mut Vec<Diagnostic>) {
        let Some(first) = self.outside.iter().min_by_key(|o| o.span.start) else { return };
        let (message, help) = match first.code {
            Code::GitLfsPointer => (
                "the weights file is a Git LFS pointer, not the weights".to_owned(),
                Some("fetch the weights with `git lfs pull`"),
            ),
            Code::MissingWeights => (
                format!("{} needs the weights file, which is missing", first.reference),
                Some("put the .bin file beside the .xml file, or name it with --weights"),
            ),
            _ => (first.message.clone(), None),
        };
        let mut diagnostic = Diagnostic::new(first.code, message)
            .in_layer(first.reference.clone())
            .at(first.span, "this constant needs it");
        if let Some(help) = help {
            diagnostic = diagnostic.help(help);
        }
        let others = self.outside.len() - 1;
        if first.code == Code::ShortWeights {
            for other in self.outside.iter().filter(|o| o.span != first.span).take(MAX_PLACES) {
                diagnostic = diagnostic.also(other.span, "outside as well");
            }
        }
        if others > 0 {
            let constants = if others == 1 { "constant is" } else { "constants are" };
            diagnostic = diagnostic.note(format!("{others} more {constants} concerned"));
        }
        diagnostics.push(diagnostic);
    }

    /// Constants that share some of their bytes, but not all.
    fn report_overlaps(&mut self, diagnostics: &mut Vec<Diagnostic>) {
        self.ranges.sort_by_key(|p| (p.bytes.start, p.bytes.end, p.span));
        let mut furthest: Option<&Place> = None;
        for place in &self.ranges {
            if let Some(before) = furthest
                && place.bytes.start < before.bytes.end
                && place.bytes != before.bytes
            {
                // The later one in the file is blamed.
                let (first, second) = if before.span < place.span { (before, place) } else { (place, before) };
                let message = format!(
                    "{}: its bytes {} to {} overlap with bytes {} to {} of {}",
                    second.reference,
                    second.bytes.start,
                    second.bytes.end,
                    first.bytes.start,
                    first.bytes.end,
                    first.reference
                );
                diagnostics.push(
                    Diagnostic::new(Code::ConstantOverlap, message)
                        .in_layer(second.reference.clone())
                        .at(second.span, "")
                        .also(first.span, "the other constant")
                        .help("constants share all of their bytes or none; one of the offsets or sizes is wrong"),
                );
            }
            if furthest.is_none_or(|before| place.bytes.end > before.bytes.end) {
                furthest = Some(place);
            }
        }
    }
}
