//! Moves the strides of pointwise convolutions to the convolutions that compute what they read.
//!
//! Residual networks of the older kind change the size of their images by convolutions of one element with strides. Of what
//! these read, most is computed for nobody. The strides go through layers that work element by element up to the last
//! convolutions; other values on the way are read element by element by a MaxPool of one element.

use std::collections::HashMap;
use std::sync::Arc;

use ovir_graph::{Model, Node, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::common::convolution::ConvolutionAttributes;
use ovir_ops::common::window::{AutoPad, WindowAxis};
use ovir_ops::pooling::max_pool::MaxPool;
use ovir_tensor::{Dim, ElementType, SmallVec};

use crate::chain::{Added, Uses, convolution_attributes, convolution_with};
use crate::fuse_elementwise::is_function;
use crate::trace::Trace;

/// The version of MaxPool that has no indices.
const WITHOUT_INDICES: OpVersion = OpVersion::new(1, (1, 7), (1, 1), (1, 1));

/// How far the elements that are read lie apart, one item a spatial axis.
type Strides = Vec<i64>;

/// Moves all such strides; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let windows: Vec<Option<Window<'_>>> = model.nodes.iter().map(|node| Window::of(validated, node)).collect();
    windows.iter().flatten().any(Window::is_strided_point).then_some(())?;
    let lift = Lift::new(validated, &windows);
    let mut changed = model.clone();
    let mut added = Added::new(model);
    let mut picked: HashMap<(Source, Strides), Source> = HashMap::new();
    let mut has_changed = false;
    for ((id, node), window) in model.iter().zip(&windows) {
        let own = lift.of(Source { node: id, port: 0 });
        let layer = &mut changed.nodes[id.index()];
        if let Some(window) = window {
            // A point reads every element of what is computed for its like alone.
            let leaves = window.is_point && lift.of(node.inputs[0]).is_some();
            if own.is_none() && !leaves {
                if window.is_strided_point() {
                    trace.declined(node, || "others read more of its data, or no convolution computes it".to_owned());
                }
                continue;
            }
            let before = &window.attributes.strides;
            let strides = if leaves { vec![1; before.len()] } else { window.times(own) };
            trace.applied(node, || match strides == *before {
                true => "computes what is read alone".to_owned(),
                false => format!("has strides of {strides:?} instead of {before:?}"),
            });
            layer.operation = convolution_with(node, window.with(strides)?);
        } else if let Some(own) = own {
            for port in operands(validated, &lift.uses, node, own)? {
                let source = node.inputs[port];
                if lift.of(source).is_none() {
                    let pick = || {
                        let operation = Arc::new(MaxPool::every(own.clone()));
                        let name = format!("{}/strided{port}", node.friendly_name);
                        added.add(Node::new(name, "MaxPool", WITHOUT_INDICES, operation, vec![source], 1))
                    };
                    layer.inputs[port] = *picked.entry((source, own.clone())).or_insert_with(pick);
                }
            }
        } else {
            continue;
        }
        if let Some(location) = &mut layer.location {
            // Its ports declare the elements that nobody reads, too.
            (location.inputs, location.outputs) = Default::default();
        }
        has_changed = true;
    }
    added.append(&mut changed);
    (has_changed && changed.sort()).then_some(changed)
}

/// Which layers compute only what is read.
struct Lift {
    uses: Uses,
    /// For each layer how far the elements of its only output lie apart that it has to compute, if it need not compute all.
    apart: Vec<Option<Strides>>,
}

/// What is read of a value.
#[derive(Clone, PartialEq)]
enum Read {
    Nothing,
    /// The elements that lie so far apart, the first one included.
    Strided(Strides),
    All,
}

impl Lift {
    fn new(validated: &Validated, windows: &[Option<Window<'_>>]) -> Lift {
        let model = validated.model();
        let uses = Uses::new(model);
        let mut read = vec![Read::Nothing; model.nodes.len()];
        // Readers come behind what they read.
        for (index, (node, window)) in model.nodes.iter().zip(windows).enumerate().rev() {
            let own = match &read[index] {
                Read::Strided(strides) if node.outputs.len() == 1 => Some(strides.clone()),
                _ => None,
            };
            let strides = match window {
                Some(window) => Some(window.times(own.as_ref())).filter(|_| window.is_point),
                None => own,
            };
            let strides = strides.filter(|strides| strides.iter().any(|stride| *stride > 1));
            let ports = match (&strides, window) {
                (None, _) => None,
                (Some(_), Some(_)) => Some(SmallVec::from_elem(0, 1)),
                (Some(strides), None) => operands(validated, &uses, node, strides),
            };
            for (port, source) in node.inputs.iter().enumerate() {
                let found = match (&strides, &ports) {
                    (Some(strides), Some(ports)) if ports.contains(&port) && source.port == 0 => {
                        Read::Strided(strides.clone())
                    }
                    _ => Read::All,
                };
                let before = &mut read[source.node.index()];
                *before = if *before == Read::Nothing || *before == found { found } else { Read::All };
            }
        }
        let mut lift = Lift { uses, apart: vec![None; model.nodes.len()] };
        for (index, (node, window)) in model.nodes.iter().zip(windows).enumerate() {
            let Read::Strided(strides) = &read[index] else { continue };
            let is_lifted = match window {
                Some(window) => window.pads.is_some(),
                // One operand that is computed by a convolution is worth to pick the others.
                None => operands(validated, &lift.uses, node, strides)
                    .is_some_and(|ports| ports.iter().any(|port| lift.of(node.inputs[*port]).is_some())),
            };
            if is_lifted && node.outputs.len() == 1 {
                lift.apart[index] = Some(strides.clone());
            }
        }
        lift
    }

    /// How far the elements of a value lie apart that have to be computed, if not all have to be.
    fn of(&self, source: Source) -> Option<&Strides> {
        self.apart[source.node.index()].as_ref().filter(|_| source.port == 0)
    }
}

/// A convolution or grouped convolution of f32.
struct Window<'m> {
    attributes: &'m ConvolutionAttributes,
    /// Whether its filters have one element, and there is no padding.
    is_point: bool,
    /// The pads at the beginnings and the ends, if they are known.
    pads: Option<[Vec<i64>; 2]>,
}

impl<'m> Window<'m> {
    /// What is known of a convolution whose filters' size is known.
    fn of(validated: &Validated, node: &'m Node) -> Option<Window<'m>> {
        let facts = |port: usize| Some(validated.inference().get(*node.inputs.get(port)?));
        let attributes = convolution_attributes(node)?;
        let (data, filter) = (facts(0)?, facts(1)?);
        let (axes, filter_dims) = (attributes.strides.len(), filter.shape.dims()?);
        let kernel = filter_dims.get(filter_dims.len().checked_sub(axes)?..)?;
        let is_single = kernel.iter().all(|dim| dim.get() == Some(1));
        let zeros = || [vec![0; axes], vec![0; axes]];
        let or_zeros = |pads: &[i64]| if pads.is_empty() { vec![0; axes] } else { pads.to_vec() };
        let pads = match attributes.auto_pad {
            AutoPad::Explicit => Some([or_zeros(&attributes.pads_begin), or_zeros(&attributes.pads_end)]),
            AutoPad::Valid => Some(zeros()),
            // One element needs no padding for every stride to begin in the data.
            _ if is_single => Some(zeros()),
            _ => {
                let shapes = data.shape.to_shape().zip(filter.shape.to_shape());
                let is_grouped = node.is("GroupConvolution");
                let geometry = shapes.map(|(data, filter)| attributes.geometry(&data, &filter, is_grouped));
                geometry.and_then(Result::ok).map(|geometry| {
                    let of = |pad: fn(&WindowAxis) -> i64| geometry.axes.iter().map(pad).collect();
                    [of(|axis| axis.pad_begin), of(|axis| axis.pad_end)]
                })
            }
        };
        let is_point = is_single && pads.as_ref().is_some_and(|pads| pads.iter().flatten().all(|pad| *pad == 0));
        let is_float = data.element_type == ElementType::F32 && axes > 0;
        is_float.then_some(Window { attributes, is_point, pads })
    }

    /// Whether some elements of its data are not read.
    fn is_strided_point(&self) -> bool {
        self.is_point && self.attributes.strides.iter().any(|stride| *stride > 1)
    }

    /// The strides with which only some elements of the output are computed.
    fn times(&self, apart: Option<&Strides>) -> Strides {
        let strides = &self.attributes.strides;
        let Some(apart) = apart else { return strides.clone() };
        strides.iter().zip(apart).map(|(stride, apart)| stride.saturating_mul(*apart)).collect()
    }

    /// The attributes with other strides; `None` if the pads depend on them.
    fn with(&self, strides: Strides) -> Option<ConvolutionAttributes> {
        let [pads_begin, pads_end] = self.pads.clone()?;
        let dilations = self.attributes.dilations.clone();
        Some(ConvolutionAttributes { strides, dilations, pads_begin, pads_end, auto_pad: AutoPad::Explicit })
    }
}

/// The inputs of a layer that works element by element that are read as far apart along the spatial axes as its output is;
/// the others are the same along these axes. `None` if it is no such layer.
fn operands(validated: &Validated, uses: &Uses, node: &Node, apart: &Strides) -> Option<SmallVec<[usize; 2]>> {
    let facts = |source: &Source| validated.inference().get(*source);
    if !(is_function(node) || node.is("PReLU")) || node.outputs.len() != 1 {
        return None;
    }
    let [first, others @ ..] = &node.inputs[..] else { return None };
    if facts(first).element_type != ElementType::F32 {
        return None;
    }
    let mut ports = SmallVec::new();
    if others.is_empty() {
        ports.push(0);
        return Some(ports);
    }
    let rank = apart.len() + 2;
    let dims = node.inputs.iter().map(|source| facts(source).shape.dims()).collect::<Option<Vec<&[Dim]>>>()?;
    let is_flat = |dims: &[Dim]| dims.iter().rev().take(apart.len()).all(|dim| dim.get() == Some(1));
    // All that have spatial axes of some size must have the same ones.
    let mut size: Option<&[Dim]> = None;
    for (port, (source, dims)) in node.inputs.iter().zip(&dims).enumerate() {
        // Slopes along one axis are those of channels.
        let is_slope = node.is("PReLU") && port == 1 && dims.len() == 1;
        if is_slope || is_flat(dims) {
            continue;
        }
        let spatial = dims.get(2..).filter(|_| dims.len() == rank && !uses.is_constant(source.node))?;
        if !size.unwrap_or(spatial).iter().zip(spatial).all(|(a, b)| a.is_same(*b)) {
            return None;
        }
        size = Some(spatial);
        ports.push(port);
    }
    Some(ports)
}
