//! Moves the strides of pointwise convolutions to the convolutions that compute what they read.
//!
//! Residual networks of the older kind change the size of their images by convolutions of one element with strides. Of what
//! these read, most is computed for nobody. The strides go through layers that work element by element up to the last
//! convolutions; other values on the way are read element by element by a MaxPool of one element.

use std::collections::HashMap;
use std::sync::Arc;

use ovir_graph::{Model, Node, Source, Validated};
use ovir_ops::common::convolution::ConvolutionAttributes;
use ovir_ops::common::window::{AutoPad, WindowAxis};
use ovir_ops::convolution::{convolution::Convolution, group_convolution::GroupConvolution};
use ovir_ops::pooling::max_pool::MaxPool;
use ovir_ops::{OpVersion, Operation};
use ovir_tensor::{Dim, ElementType, SmallVec};

use crate::chain::{Added, Uses};
use crate::trace::Trace;

/// The version of MaxPool that has no indices.
const WITHOUT_INDICES: OpVersion = OpVersion::new(1, (1, 7), (1, 1), (1, 1));

/// Layers that work element by element, if their further operands are the same along the spatial axes.
const ELEMENTWISE: &[&str] = &[
    "Abs",
    "Add",
    "Clamp",
    "Divide",
    "Elu",
    "Exp",
    "FakeQuantize",
    "Gelu",
    "HSigmoid",
    "HSwish",
    "Maximum",
    "Minimum",
    "Mish",
    "Multiply",
    "Negative",
    "PReLU",
    "ReLU",
    "Sigmoid",
    "SoftPlus",
    "Sqrt",
    "SquaredDifference",
    "Subtract",
    "Swish",
    "Tanh",
];

/// How far the elements that are read lie apart, one item a spatial axis.
type Strides = SmallVec<[i64; 3]>;

/// Moves all such strides; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let skips = |node| Window::of(validated, node).is_some_and(|window| window.is_point && window.skips());
    model.nodes.iter().any(skips).then_some(())?;
    let lift = Lift::new(validated);
    let mut changed = model.clone();
    let mut added = Added::new(model);
    let mut picked: HashMap<(Source, Strides), Source> = HashMap::new();
    let mut has_changed = false;
    for (id, node) in model.iter() {
        let own = lift.of(Source { node: id, port: 0 });
        let layer = &mut changed.nodes[id.index()];
        if let Some(window) = Window::of(validated, node) {
            // A point reads every element of what is computed for its like alone.
            let leaves = window.is_point && lift.of(node.inputs[0]).is_some();
            if own.is_none() && !leaves {
                if window.is_point && window.skips() {
                    trace.declined(node, || "others read more of its data, or no convolution computes it".to_owned());
                }
                continue;
            }
            let strides = if leaves { window.strides.iter().map(|_| 1).collect() } else { window.times(own) };
            trace.applied(node, || match strides == window.strides {
                true => "computes what is read alone".to_owned(),
                false => format!("has strides of {:?} instead of {:?}", &*strides, &*window.strides),
            });
            layer.operation = window.with(&strides)?;
        } else if let Some(own) = own {
            for port in operands(validated, &lift.uses, node, own)? {
                let source = node.inputs[port];
                if lift.of(source).is_none() {
                    let pick = || {
                        let operation = Arc::new(MaxPool::every(own.to_vec()));
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
    fn new(validated: &Validated) -> Lift {
        let model = validated.model();
        let uses = Uses::new(model);
        let mut read = vec![Read::Nothing; model.nodes.len()];
        // Readers come behind what they read.
        for (index, node) in model.nodes.iter().enumerate().rev() {
            let own = match &read[index] {
                Read::Strided(strides) if node.outputs.len() == 1 => Some(strides.clone()),
                _ => None,
            };
            let window = Window::of(validated, node);
            let strides = match &window {
                Some(window) => Some(window.times(own.as_ref())).filter(|_| window.is_point),
                None => own,
            };
            let strides = strides.filter(|strides| strides.iter().any(|stride| *stride > 1));
            let ports = match (&strides, &window) {
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
        for (index, node) in model.nodes.iter().enumerate() {
            let Read::Strided(strides) = &read[index] else { continue };
            let is_lifted = match Window::of(validated, node) {
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
    is_grouped: bool,
    strides: Strides,
    /// Whether its filters have one element, and there is no padding.
    is_point: bool,
    /// The pads at the beginnings and the ends, if they are known.
    pads: Option<[Vec<i64>; 2]>,
}

impl<'m> Window<'m> {
    /// What is known of a convolution whose filters' size is known.
    fn of(validated: &Validated, node: &'m Node) -> Option<Window<'m>> {
        let facts = |port: usize| Some(validated.inference().get(*node.inputs.get(port)?));
        let operation = &node.operation;
        let plain = operation.downcast_ref::<Convolution>();
        let grouped = operation.downcast_ref::<GroupConvolution>();
        let attributes = plain.map(|found| &found.attributes).or(grouped.map(|found| &found.attributes))?;
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
                let geometry = shapes.and_then(|(data, filter)| match (plain, grouped) {
                    (Some(plain), _) => plain.geometry(&data, &filter).ok(),
                    (_, Some(grouped)) => grouped.geometry(&data, &filter).ok(),
                    _ => None,
                });
                geometry.map(|geometry| {
                    let of = |pad: fn(&WindowAxis) -> i64| geometry.axes.iter().map(pad).collect();
                    [of(|axis| axis.pad_begin), of(|axis| axis.pad_end)]
                })
            }
        };
        let is_point = is_single && pads.as_ref().is_some_and(|pads| pads.iter().flatten().all(|pad| *pad == 0));
        let is_float = data.element_type == ElementType::F32 && axes > 0;
        let strides = attributes.strides.iter().copied().collect();
        is_float.then_some(Window { attributes, is_grouped: grouped.is_some(), strides, is_point, pads })
    }

    /// Whether some elements are not read.
    fn skips(&self) -> bool {
        self.strides.iter().any(|stride| *stride > 1)
    }

    /// The strides with which only some elements of the output are computed.
    fn times(&self, apart: Option<&Strides>) -> Strides {
        let Some(apart) = apart else { return self.strides.clone() };
        self.strides.iter().zip(apart).map(|(stride, apart)| stride.saturating_mul(*apart)).collect()
    }

    /// The same convolution with other strides; `None` if its pads depend on them.
    fn with(&self, strides: &Strides) -> Option<Arc<dyn Operation>> {
        let [pads_begin, pads_end] = self.pads.clone()?;
        let (strides, dilations) = (strides.to_vec(), self.attributes.dilations.clone());
        let attributes =
            ConvolutionAttributes { strides, dilations, pads_begin, pads_end, auto_pad: AutoPad::Explicit };
        Some(if self.is_grouped {
            Arc::new(GroupConvolution { attributes })
        } else {
            Arc::new(Convolution { attributes })
        })
    }
}

/// The inputs of a layer that works element by element that are read as far apart along the spatial axes as its output is;
/// the others are the same along these axes. `None` if it is no such layer.
fn operands(validated: &Validated, uses: &Uses, node: &Node, apart: &Strides) -> Option<SmallVec<[usize; 2]>> {
    let facts = |source: &Source| validated.inference().get(*source);
    if !ELEMENTWISE.contains(&&*node.type_name) || node.outputs.len() != 1 {
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
    let is_same = |dims: &[Dim]| dims.iter().rev().take(apart.len()).all(|dim| dim.get() == Some(1));
    // All that have spatial axes of some size must have the same ones.
    let mut size: Option<&[Dim]> = None;
    for (port, (source, dims)) in node.inputs.iter().zip(&dims).enumerate() {
        // Slopes along one axis are those of channels.
        let is_slope = node.is("PReLU") && port == 1 && dims.len() == 1;
        if is_slope || is_same(dims) {
            continue;
        }
        let spatial = dims.get(2..).filter(|_| dims.len() == rank && !uses.is_constant(source.node))?;
        let is_known = |dim: &Dim| dim.is_static() || dim.symbol().is_some();
        if !spatial.iter().all(is_known) || size.is_some_and(|size| size != spatial) {
            return None;
        }
        size = Some(spatial);
        ports.push(port);
    }
    Some(ports)
}
