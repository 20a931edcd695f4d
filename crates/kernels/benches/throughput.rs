//! Plain timing of the kernels: `cargo bench -p ovir-kernels --bench throughput -- [filter]`.
//!
//! Prints the median time and the rate with one and with two threads.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

use ovir_kernels::attention::{
    AttentionGeometry, AttentionMask, OperandForm, QueriesAndKeys, attention, attention_scratch_len,
};
use ovir_kernels::blocked::{
    BLOCK, BlockedConvolution, BlockedDepthwise, BlockedInput, DepthwiseInput, blocked_convolution,
    blocked_convolution_scratch_len, blocked_depthwise,
};
use ovir_kernels::chain::{Chain, ChainGeometry, ChainInput, ChainOutput, ChainStep, Operand, run_chain};
use ovir_kernels::convolution::{ConvolutionEpilogue, ConvolutionGeometry, PackedConvolution, convolution};
use ovir_kernels::elementwise::{BinaryOp, BroadcastGeometry, binary};
use ovir_kernels::epilogue::{Activation, Epilogue};
use ovir_kernels::gemm::{self, MatMulGeometry, PackedB};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::movement::{StridedCopy, copy};
use ovir_kernels::quantized::QuantizedOutput;
use ovir_kernels::reduce::sum;
use ovir_kernels::softmax::softmax;
use ovir_kernels::unary::{UnaryOp, unary_f32};
use std::time::Instant;

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    for isa in Isa::available() {
        if isa == isa::detect() || filter.contains("tiers") {
            gemm_rows(isa, &filter);
            convolution_rows(isa, &filter);
            depthwise_rows(isa, &filter);
            unary_rows(isa, &filter);
            other_rows(isa, &filter);
        }
    }
}

fn gemm_rows(isa: Isa, filter: &str) {
    let rows = [
        (64, 147, 12544),
        (64, 576, 3136),
        (256, 64, 3136),
        (128, 1152, 784),
        (256, 2304, 196),
        (512, 4608, 49),
        (2048, 512, 49),
        (128, 384, 384),
        (128, 384, 1536),
        (128, 1536, 384),
        (1024, 1024, 1024),
        (1, 4096, 4096),
    ];
    for (m, k, n) in rows {
        let (a, b) = (values(m * k), values(k * n));
        let packed = PackedB::pack(isa, k, n, &b, n, 1).unwrap();
        let mut c = vec![0.0; m * n];
        let mut scratch = vec![0.0; gemm::gemm_packed_b_scratch_len(isa, m, k, k)];
        let flops = 2.0 * (m * k * n) as f64;
        report(filter, &format!("gemm packed {isa} {m}x{k}x{n}"), flops, "GFLOP/s", || {
            gemm::gemm_packed_b(isa, m, &a, k, &packed, &mut c, n, &Epilogue::default(), &mut scratch).unwrap();
        });
        let geometry = MatMulGeometry::dense(1, m, k, n, false, false, true, true);
        let mut scratch = vec![0.0; gemm::matmul_scratch_len(isa, &geometry)];
        report(filter, &format!("gemm plain {isa} {m}x{k}x{n}"), flops, "GFLOP/s", || {
            gemm::matmul(isa, &geometry, &a, &b, &mut c, &Epilogue::default(), &mut scratch).unwrap();
        });
    }
}

fn convolution_rows(isa: Isa, filter: &str) {
    let rows = [
        ("conv1 7x7/2", 3, 64, 224, 7, 2),
        ("L1 3x3", 64, 64, 56, 3, 1),
        ("L2 3x3", 128, 128, 28, 3, 1),
        ("L3 3x3", 256, 256, 14, 3, 1),
        ("L4 3x3", 512, 512, 7, 3, 1),
        ("L1 1x1e", 64, 256, 56, 1, 1),
        ("L1 1x1r", 256, 64, 56, 1, 1),
        ("L2 1x1e", 128, 512, 28, 1, 1),
        ("L3 1x1e", 256, 1024, 14, 1, 1),
        ("L4 1x1e", 512, 2048, 7, 1, 1),
        ("L4 1x1r", 2048, 512, 7, 1, 1),
        ("L2 3x3/2", 128, 128, 56, 3, 2),
        ("L2 1x1/2", 256, 512, 56, 1, 2),
        ("mobile 1x1r", 32, 8, 96, 1, 1),
        ("mobile 1x1", 8, 8, 256, 1, 1),
        ("mobile 1x1e", 24, 144, 64, 1, 1),
    ];
    for (name, inputs, outputs, side, kernel, stride) in rows {
        let pad = kernel / 2;
        let geometry = ConvolutionGeometry::new(
            1,
            1,
            inputs,
            outputs,
            [1, side, side],
            [1, kernel, kernel],
            [1, stride, stride],
            [1; 3],
            [0, pad, pad],
            [0, pad, pad],
        )
        .unwrap();
        let (input, weights, bias) = (values(geometry.input_len()), values(geometry.weights_len()), values(outputs));
        let epilogue = ConvolutionEpilogue {
            bias: Some(&bias),
            activation: Activation::Unary(UnaryOp::Relu),
            ..ConvolutionEpilogue::default()
        };
        let mut output = vec![0.0; geometry.output_len()];
        let packed = PackedConvolution::pack(isa, &geometry, &weights).unwrap();
        report(filter, &format!("conv plain {isa} {name}"), geometry.flops() as f64, "GFLOP/s", || {
            convolution(isa, &geometry, &packed, &input, &mut output, &epilogue).unwrap();
        });
        let layout = if inputs < 8 { BlockedInput::Plain } else { BlockedInput::Blocked };
        let packed = BlockedConvolution::pack(&geometry, layout, &weights).unwrap();
        let mut scratch = vec![0.0; blocked_convolution_scratch_len(&geometry, layout)];
        let whole = |len: usize, channels: usize| len / channels * channels.next_multiple_of(BLOCK);
        let input = match layout {
            BlockedInput::Plain => input,
            BlockedInput::Blocked => values(whole(geometry.input_len(), inputs)),
        };
        let mut output = vec![0.0; whole(geometry.output_len(), outputs)];
        report(filter, &format!("conv blocked {isa} {name}"), geometry.flops() as f64, "GFLOP/s", || {
            blocked_convolution(isa, &geometry, &packed, &input, &mut output, &epilogue, &mut scratch).unwrap();
        });
    }
}

fn depthwise_rows(isa: Isa, filter: &str) {
    for (channels, side, kernel, stride) in [(64, 112, 3, 1), (128, 56, 3, 2), (512, 14, 3, 1), (240, 28, 5, 1)] {
        let pad = kernel / 2;
        let geometry = ConvolutionGeometry::new(
            1,
            channels,
            channels,
            channels,
            [1, side, side],
            [1, kernel, kernel],
            [1, stride, stride],
            [1; 3],
            [0, pad, pad],
            [0, pad, pad],
        )
        .unwrap();
        let (input, weights) = (values(geometry.input_len()), values(geometry.weights_len()));
        let epilogue = ConvolutionEpilogue::default();
        let mut output = vec![0.0; geometry.output_len()];
        let packed = PackedConvolution::pack(isa, &geometry, &weights).unwrap();
        let name = format!("{channels}x{side}x{side} {kernel}x{kernel}/{stride}");
        report(filter, &format!("depthwise plain {isa} {name}"), geometry.flops() as f64, "GFLOP/s", || {
            convolution(isa, &geometry, &packed, &input, &mut output, &epilogue).unwrap();
        });
        let packed = BlockedDepthwise::pack(&geometry, &weights).unwrap();
        report(filter, &format!("depthwise blocked {isa} {name}"), geometry.flops() as f64, "GFLOP/s", || {
            let (input, output) = (DepthwiseInput::Values(&input), QuantizedOutput::Values(&mut output));
            blocked_depthwise(isa, &geometry, packed.weights(), input, output, &epilogue).unwrap();
        });
    }
}

fn unary_rows(isa: Isa, filter: &str) {
    for op in [
        UnaryOp::Relu,
        UnaryOp::Exp,
        UnaryOp::Tanh,
        UnaryOp::Sigmoid,
        UnaryOp::Erf,
        UnaryOp::GeluErf,
        UnaryOp::Log,
        UnaryOp::Sin,
        UnaryOp::Mish,
    ] {
        let input = values(100_000);
        let mut output = vec![0.0; input.len()];
        report(filter, &format!("unary {isa} {op:?}"), input.len() as f64, "Gelem/s", || {
            unary_f32(isa, op, &input, &mut output).unwrap();
        });
    }
}

fn other_rows(isa: Isa, filter: &str) {
    for (heads, queries, keys, depth) in
        [(12, 128, 128, 32), (12, 512, 512, 64), (4, 1500, 1500, 16), (32, 1, 2048, 128)]
    {
        let geometry = AttentionGeometry::dense([1, heads, 1], [queries, keys, depth, depth], 0.1, None);
        let (q, k) = (values(heads * queries * depth), values(heads * keys * depth));
        let mut output = vec![0.0; q.len()];
        let mut scratch = vec![0.0; attention_scratch_len(isa, &geometry, OperandForm::Values)];
        let flops = 4.0 * (heads * queries * keys * depth) as f64;
        report(filter, &format!("attention {isa} {heads}x{queries}x{keys}x{depth}"), flops, "GFLOP/s", || {
            attention(
                isa,
                &geometry,
                QueriesAndKeys::Values(&q, &k),
                &k,
                AttentionMask::None,
                None,
                &mut output,
                &mut scratch,
            )
            .unwrap();
        });
    }
    let input = values(4 << 20);
    let mut output = vec![0.0; input.len()];
    let bytes = 8.0 * input.len() as f64;
    report(filter, &format!("softmax {isa} 4096x1024"), bytes, "GB/s", || {
        softmax(isa, false, [4096, 1024, 1], &input, &mut output).unwrap();
    });
    let geometry = BroadcastGeometry::new(&[4 << 20], &[4 << 20]).unwrap();
    report(filter, &format!("binary add {isa} 4Mi"), 1.5 * bytes, "GB/s", || {
        binary(isa, BinaryOp::Add, &geometry, &input, &input, &mut output).unwrap();
    });
    report(filter, &format!("reduce sum {isa} 4Mi"), bytes / 2.0, "GB/s", || {
        std::hint::black_box(sum(isa, &input));
    });
    let step = |place: usize| ChainStep::Binary(BinaryOp::Add, Operand::Step(place), Operand::Constant(1.0));
    let steps = std::iter::once(ChainStep::Unary(UnaryOp::Relu, Operand::Input(0))).chain((0..99).map(step));
    let chain = Chain::new(1, steps.collect()).unwrap();
    let geometry = ChainGeometry::new(&[16], &[&[16]]).unwrap();
    report(filter, &format!("chain of 100 {isa} [1,16]"), 100.0, "Gop/s", || {
        let (inputs, target) = ([ChainInput::Values(&input[..16])], ChainOutput::Values(&mut output[..16]));
        run_chain(isa, &chain, &geometry, &inputs, None, target).unwrap();
    });
    // SAFETY: every bit pattern is a u8, and the slices keep their memory borrowed.
    let (from, to) = unsafe {
        (
            std::slice::from_raw_parts(input.as_ptr().cast::<u8>(), 4 * input.len()),
            std::slice::from_raw_parts_mut(output.as_mut_ptr().cast::<u8>(), 4 * input.len()),
        )
    };
    report(filter, &format!("copy {isa} 16 MiB"), bytes, "GB/s", || {
        copy(from, to).unwrap();
    });
    for (shape, order) in
        [(vec![2048, 2048], vec![1, 0]), (vec![64, 256, 256], vec![1, 2, 0]), (vec![128, 12, 32, 64], vec![0, 2, 1, 3])]
    {
        let transpose = StridedCopy::transpose(&shape, &order).unwrap();
        let bytes = 8.0 * transpose.count() as f64;
        report(filter, &format!("transpose {shape:?} {order:?}"), bytes, "GB/s", || {
            transpose.run(4, from, to).unwrap();
        });
    }
}

fn values(count: usize) -> Vec<f32> {
    let mut state = 12345u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// Prints the median time and the rate of `amount` units a call, in a pool of one thread and of two.
fn report(filter: &str, name: &str, amount: f64, unit: &str, mut body: impl FnMut() + Send) {
    if !name.contains(filter.trim_end_matches("tiers").trim()) {
        return;
    }
    let mut line = format!("{name:<44}");
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (mut times, used) = pool.install(|| {
            let (start, before, mut times) = (Instant::now(), processor_seconds(), vec![]);
            while start.elapsed().as_secs_f64() < 0.3 || times.len() < 5 {
                let begin = Instant::now();
                body();
                times.push(begin.elapsed().as_secs_f64());
            }
            let used = (processor_seconds() - before) / times.len() as f64;
            (times, used)
        });
        times.sort_by(f64::total_cmp);
        let (median, low) = (times[times.len() / 2], times[times.len() / 10]);
        if threads == 1 {
            line += &format!(" {:>7.1} {unit} by processor time;", amount / used / 1e9);
        }
        line += &format!(
            " {threads}T {:>9.1} us {:>7.1} (p10 {:.1}) {unit}",
            median * 1e6,
            amount / median / 1e9,
            amount / low / 1e9
        );
    }
    println!("{line}");
}

/// Seconds this thread has run, which other work on the machine does not count towards; NaN where unknown.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or(f64::NAN) / 1e9
}
