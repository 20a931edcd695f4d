//! Constants in half precision.

use std::sync::Arc;

use ovir_graph::{Model as Graph, Node, NodeId, Source as Edge, validate};
use ovir_ir::{RtAttribute, Text};
use ovir_ops::OpVersion;
use ovir_ops::r#type::convert::{Convert, ConvertAttributes};
use ovir_tensor::{ElementType, Tensor, f16};

use crate::{Error, Model};

/// The smallest number above zero that f16 has: 2^-24.
const SMALLEST: f64 = 1.0 / 16_777_216.0;

/// What compression has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compression {
    /// Constants that are now stored as f16.
    pub compressed: usize,
    /// Constants of f32 and f64 that stay, because f16 has no numbers near enough to some of theirs.
    pub kept: usize,
}

impl Model {
    /// The model with its constants of f32 and f64 stored as f16, each followed by a Convert to its type.
    ///
    /// A constant stays as it is when one of its values is too large for f16, or when one that is not zero would become
    /// zero and nothing else is left of it: a single epsilon of 1e-12 must not vanish.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn compress_to_f16(&self) -> Result<(Model, Compression), Error> {
        let mut graph = self.graph().clone();
        let mut compression = Compression::default();
        compress(&mut graph, &mut compression)?;
        let validation = validate(graph, Vec::new());
        match validation.into_validated() {
            Ok(validated) => {
                let model = Model {
                    validated: Arc::new(validated),
                    source: self.source.clone(),
                    warnings: self.warnings.clone(),
                };
                Ok((model, compression))
            }
            Err(diagnostics) => Err(Error::InvalidModel { file: self.source.path.clone(), diagnostics }),
        }
    }
}

fn compress(graph: &mut Graph, compression: &mut Compression) -> Result<(), Error> {
    for index in 0..graph.nodes.len() {
        for body in &mut graph.nodes[index].bodies {
            compress(body, compression)?;
        }
        let Some(tensor) = graph.nodes[index].tensor() else { continue };
        let element_type = tensor.element_type();
        if !matches!(element_type, ElementType::F32 | ElementType::F64) || tensor.elements() == 0 {
            continue;
        }
        match halves(tensor)? {
            Some(halves) => {
                compression.compressed += 1;
                insert(graph, index, halves, element_type);
            }
            None => compression.kept += 1,
        }
    }
    if compression.compressed > 0 {
        graph.sort();
    }
    Ok(())
}

/// The tensor in f16, if f16 has its values.
fn halves(tensor: &Tensor) -> Result<Option<Tensor>, Error> {
    let tensor = tensor.aligned()?;
    let values: Vec<f64> = match tensor.element_type() {
        ElementType::F32 => tensor.slice::<f32>()?.iter().map(|value| f64::from(*value)).collect(),
        _ => tensor.slice::<f64>()?.to_vec(),
    };
    let is_too_large = |value: &f64| value.is_finite() && value.abs() > f64::from(f16::MAX);
    let is_too_small = |value: &f64| *value != 0.0 && value.abs() < SMALLEST;
    if values.iter().any(is_too_large) || values.iter().all(is_too_small) {
        return Ok(None);
    }
    let halves: Vec<f16> = values.iter().map(|value| f16::from_f64(*value)).collect();
    Ok(Some(Tensor::from_slice(&halves, tensor.shape().clone())?))
}

/// The layer becomes the Convert, which keeps its name; the constant comes as a new layer.
fn insert(graph: &mut Graph, index: usize, halves: Tensor, element_type: ElementType) {
    let constant = NodeId(graph.nodes.len() as u32);
    let old = &graph.nodes[index];
    let name = format!("{}_compressed", old.friendly_name);
    let operation = Arc::new(Convert { attributes: ConvertAttributes { destination_type: element_type } });
    let version = OpVersion::new(1, (1, 17), (1, 1), (1, 1));
    let inputs = vec![Edge { node: constant, port: 0 }];
    let mut convert = Node::new(old.friendly_name.clone(), "Convert", version, operation, inputs, 1);
    convert.outputs = old.outputs.clone();
    convert.rt_info = old.rt_info.clone();
    // OpenVINO marks Converts that only undo a compression.
    convert.rt_info.push(RtAttribute {
        element: Text::of("attribute"),
        name: Text::of("decompression"),
        version: Text::of("0"),
        ..RtAttribute::default()
    });
    graph.nodes[index] = convert;
    graph.nodes.push(Node::constant(name, halves));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn values_that_f16_lacks_stay() {
        let is_compressed = |values: &[f32]| {
            let tensor = Tensor::from_slice(values, [values.len()]).unwrap();
            halves(&tensor).unwrap().is_some()
        };
        assert!(is_compressed(&[1.0, -0.1, 65504.0]));
        assert!(is_compressed(&[0.0, 1e-12, f32::INFINITY, f32::NAN]));
        assert!(!is_compressed(&[65600.0, 1.0]));
        assert!(!is_compressed(&[1e-12]));
        let third = halves(&Tensor::from_slice(&[1f64 / 3.0], [1]).unwrap()).unwrap().unwrap();
        assert_eq!(third.slice::<f16>().unwrap(), [f16::from_f64(1.0 / 3.0)]);
    }
}
