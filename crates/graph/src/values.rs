//! Values of constants that are legal and often a mistake.

use ovir_diagnostics::{Code, Diagnostic};
use ovir_tensor::{ElementType, Tensor};

use crate::{Inference, Model, Node, NodeId};

/// The largest finite f16.
const LARGEST_HALF: f64 = 65504.0;

/// What is odd about the elements of a constant: how many, and the first of each kind.
#[derive(Default)]
struct Oddities {
    nan: Found,
    infinite: Found,
    beyond_half: Found,
}

#[derive(Default)]
struct Found {
    count: usize,
    first: Option<(usize, f64)>,
}

/// Looks into every floating-point constant for NaN, infinities and values beyond the range of f16. This reads all
/// weights.
pub fn check_values(model: &Model) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for node in &model.nodes {
        if let Some(tensor) = node.tensor() {
            check(node, tensor, &mut diagnostics);
        }
        for body in &node.bodies {
            diagnostics.extend(check_values(body));
        }
    }
    diagnostics
}

/// What validation could not know of a model that was read without weights: declared shapes that depend on constants.
pub fn unknown_without_weights(model: &Model, inference: &Inference) -> Option<Diagnostic> {
    let is_unchecked = |(id, node): &(NodeId, &Node)| {
        let declared = node.location.iter().flat_map(|l| &l.outputs).map(|port| port.declared.shape());
        let mut pairs = declared.zip(inference.outputs(*id));
        pairs.any(|(declared, facts)| declared.is_static() && !facts.shape.is_static())
    };
    let mut unchecked = model.iter().filter(is_unchecked);
    let (_, first) = unchecked.next()?;
    let location = first.location.as_ref()?;
    let count = 1 + unchecked.count();
    let layers = if count == 1 { "1 layer".to_owned() } else { format!("{count} layers") };
    let message = format!("the declared shapes of {layers} depend on weights and were not checked");
    let diagnostic = Diagnostic::new(Code::UnknownWithoutWeights, message).in_layer(first.reference());
    Some(diagnostic.at(location.layer, "the first of them"))
}

fn check(node: &Node, tensor: &Tensor, diagnostics: &mut Vec<Diagnostic>) {
    let bytes = tensor.bytes();
    let oddities = match tensor.element_type() {
        ElementType::F64 => scan(bytes, |b: [u8; 8]| f64::from_le_bytes(b)),
        ElementType::F32 => scan(bytes, |b: [u8; 4]| f64::from(f32::from_le_bytes(b))),
        ElementType::F16 => scan(bytes, |b: [u8; 2]| half::f16::from_le_bytes(b).to_f64()),
        ElementType::Bf16 => scan(bytes, |b: [u8; 2]| half::bf16::from_le_bytes(b).to_f64()),
        _ => return,
    };
    let total = tensor.elements();
    for (code, found, what) in [
        (Code::NotFinite, &oddities.nan, "NaN"),
        (Code::NotFinite, &oddities.infinite, "infinite"),
        (Code::HalfOverflow, &oddities.beyond_half, "beyond the range of f16"),
    ] {
        let Some((index, value)) = found.first else { continue };
        let reference = node.reference();
        let are = if found.count == 1 { "is" } else { "are" };
        let message =
            format!("{reference}: {} of {total} values {are} {what}, first {value} at index {index}", found.count);
        let mut diagnostic = Diagnostic::new(code, message).in_layer(reference);
        if let Some(location) = &node.location {
            let data = location.attributes.iter().find(|(name, _)| name == "offset").map(|(_, span)| *span);
            diagnostic = diagnostic.at(data.unwrap_or(location.layer), "in these bytes");
        }
        diagnostics.push(diagnostic);
    }
}

fn scan<const WIDTH: usize>(bytes: &[u8], read: impl Fn([u8; WIDTH]) -> f64) -> Oddities {
    let mut oddities = Oddities::default();
    for (index, chunk) in bytes.as_chunks::<WIDTH>().0.iter().enumerate() {
        let value = read(*chunk);
        let found = if value.is_nan() {
            &mut oddities.nan
        } else if value.is_infinite() {
            &mut oddities.infinite
        } else if value.abs() > LARGEST_HALF {
            &mut oddities.beyond_half
        } else {
            continue;
        };
        found.count += 1;
        found.first.get_or_insert((index, value));
    }
    oddities
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn odd_values_are_counted() {
        let model = Model {
            nodes: vec![Node::constant(
                "c",
                Tensor::from_slice(&[1.0f32, f32::NAN, 1e6, f32::INFINITY, -1e6, 65504.0], [6]).unwrap(),
            )],
            ..Model::default()
        };
        let found: Vec<_> = check_values(&model).into_iter().map(|d| (d.code, d.message)).collect();
        let text = |what: &str| format!("layer \"c\" (id -, Const opset1): {what}");
        let expected = [
            (Code::NotFinite, text("1 of 6 values is NaN, first NaN at index 1")),
            (Code::NotFinite, text("1 of 6 values is infinite, first inf at index 3")),
            (Code::HalfOverflow, text("2 of 6 values are beyond the range of f16, first 1000000 at index 2")),
        ];
        assert_eq!(found, expected);
    }
}
