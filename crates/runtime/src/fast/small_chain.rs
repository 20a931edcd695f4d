//! Fused elementwise layers over few f32, whose constants the kernel keeps.

use ovir_kernels::chain::{Chain, MOST_ELEMENTS, MOST_INPUTS, SmallChain, spread};
use ovir_kernels::isa::{self, Isa};
use ovir_ops::OpResult;
use ovir_ops::fused::Fused;
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::chain::{functions, steps};
use super::parts::{floats, kernel_error};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

// What the optimiser takes for few elements is so here.
const _: () = assert!(ovir_optimize::FEW_ELEMENTS <= MOST_ELEMENTS);

struct SmallChainKernel {
    isa: Isa,
    chain: SmallChain,
    /// The layer's inputs that are no constants, in their order.
    ports: SmallVec<[usize; 4]>,
    output: Shape,
    nanoseconds: u64,
}

/// Claims groups of elementwise layers of one small static shape whose inputs have it, or are constants.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let node = context.node;
    let fused = node.operation.downcast_ref::<Fused>().filter(|_| !context.is_blocked)?;
    let output = context.outputs.first().filter(|facts| facts.element_type == ElementType::F32)?.shape.to_shape()?;
    let elements = Some(output.elements()).filter(|elements| (1..=MOST_ELEMENTS).contains(elements))?;
    // Codes and integers are for larger chains.
    (functions(&fused.stages)?.count() == fused.stages.len()).then_some(())?;
    let isa = isa::detect();
    let (mut singles, mut constants, mut ports) = (Vec::new(), Vec::new(), SmallVec::new());
    for (port, facts) in context.inputs.iter().enumerate() {
        let shape = facts.shape.to_shape().filter(|_| facts.element_type == ElementType::F32)?;
        let constant = (context.constant)(port);
        if constant.is_none() {
            (shape.elements() == elements).then(|| ports.push(port))?;
        }
        let single = constant.as_ref().filter(|_| shape.elements() == 1);
        singles.push(single.and_then(|tensor| floats(tensor)?.first().copied()));
        if single.is_none() {
            constants.push(match constant {
                Some(tensor) => Some(spread(isa, &floats(&tensor)?, &shape, &output).ok()?),
                None => None,
            });
        }
    }
    let packed_inputs = (0..singles.len()).filter(|port| !ports.contains(port)).collect();
    let spread_ports: Vec<usize> = (0..singles.len()).filter(|port| singles[*port].is_none()).collect();
    let steps = steps(&fused.stages, &singles, &spread_ports, &[])?;
    let chain = Chain::new(constants.len(), steps).ok()?;
    let nanoseconds = 5 * fused.stages.len() as u64 + elements as u64 * chain.picoseconds() / 1000;
    let chain = SmallChain::new(&chain, elements, &constants).ok()?;
    let kernel = SmallChainKernel { isa, chain, ports, output, nanoseconds };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
}

impl Kernel for SmallChainKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.outputs.first().is_some_and(|output| **output == self.output)
    }

    fn inputs_read(&self) -> usize {
        self.ports.last().map_or(0, |port| port + 1)
    }

    fn work_nanoseconds(&self, _shapes: &StepShapes<'_>) -> u64 {
        self.nanoseconds
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let mut inputs: SmallVec<[&[f32]; MOST_INPUTS]> = SmallVec::new();
        for port in &self.ports {
            inputs.push(io.inputs[*port].slice::<f32>()?);
        }
        self.chain.run(self.isa, &inputs, output.slice_mut::<f32>()?).map_err(kernel_error)
    }
}
