//! Sums of products of bytes in the tiles of AMX: sixteen positions by sixteen output channels in one instruction.
//!
//! A row of a tile of data is what one position reads side by side: a part of its channels, or of the channels of a row of
//! taps. Rows of one tile lie equally far apart, so that it holds positions that follow each other in the *input*; some of
//! them lie between the rows of the output, and what is summed for them is dropped. A tile of weights is what
//! [`QuantizedWeights`](super::QuantizedWeights) holds for as many quads of one block of outputs. Sums of bytes are those of the
//! integers, as in all other kernels; sums of bf16 are in an order of their own, the same for any number of threads.

use super::dots::{DotKernel, Dots, dispatch_wide, has_bf16};
use super::{BLOCK, CodeLayout, Element, End, Ending, Ends, Isa, Job, QUAD, reads_of};
use crate::convolution::ConvolutionGeometry;
use crate::isa::Tier;
use crate::parallel::parallel_for;
use crate::simd::Simd;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows of a tile: positions, or quads of weights.
const ROWS: usize = 16;

/// Bytes of a row of a tile.
pub(super) const ROW_BYTES: usize = 64;

/// Fewer positions are left to the instructions of vectors, which read the same weights. The border is not measured.
const LEAST_POSITIONS: usize = 5;

/// Nanoseconds of a step of four products, and of what becomes of their sums. Both are rough.
const STEP_NANOSECONDS: usize = 18;
const END_NANOSECONDS: usize = 200;

/// Nanoseconds of a task.
const TASK_NANOSECONDS: usize = 40_000;

/// Data of so many bytes stay near from one block of outputs to the next.
const NEAR_BYTES: usize = 1 << 20;

/// Bytes of the weights of the next blocks that each step asks for.
const ASKED_BYTES: usize = 512;

/// The parts of equal length, of whole quads, in which so many bytes are read: their number, and the bytes of each.
fn parts_of(bytes: usize) -> [usize; 2] {
    let parts = bytes.div_ceil(ROW_BYTES).max(1);
    [parts, bytes.div_ceil(parts).next_multiple_of(QUAD)]
}

/// Bytes that are read for a run of so many.
pub(super) fn filled(bytes: usize) -> usize {
    let [parts, bytes] = parts_of(bytes);
    parts * bytes
}

/// Whether the machine has tiles of bytes, or of bf16, and this process may use them.
pub(super) fn has_amx(isa: Isa, element: Element) -> bool {
    let [has_bytes, has_halves] = instructions::usable();
    isa.tier() == Tier::Avx512
        && match element {
            Element::Byte => has_bytes && isa.has_vnni(),
            Element::Bf16 => has_halves && has_bf16(isa),
            Element::Word => false,
        }
}

/// The layout from which a convolution of codes runs fastest, where the machine has tiles and they are worth a layout of their
/// own: [`CodeLayout::Tiles`] where there are more channels than lie side by side in blocks, and [`CodeLayout::TileBlocks`] for
/// groups that a block of outputs reads several blocks of, if the taps of a row fill up the rows of a tile.
#[must_use]
pub fn tile_layout(isa: Isa, geometry: &ConvolutionGeometry) -> Option<CodeLayout> {
    let [groups, _, inputs, _, wide] = geometry.channels_and_kernel();
    let layout = if groups == 1 { CodeLayout::Tiles } else { CodeLayout::TileBlocks };
    let fits = match layout {
        CodeLayout::Tiles => inputs > BLOCK,
        _ => wide > 1 && geometry.dilation()[2] == 1 && reads_of(geometry, layout)?.0.runs > 1,
    };
    (fits && has_amx(isa, Element::Byte)).then_some(layout)
}

/// A convolution or a product in tiles.
pub(super) struct Tiles<'j, 'a> {
    job: &'j Job<'a>,
    strips: Strips,
    steps: Steps,
    /// Bytes from one position of a strip to the next.
    row_stride: usize,
}

/// The positions that windows begin at, in strips that are the rows of a tile each. Strips are parts of lines, the last of
/// which begins earlier where the line ends, so that it repeats positions.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Strips {
    lines: usize,
    /// Positions of a line, strips of a line, and positions of a strip.
    line: usize,
    of_line: usize,
    rows: usize,
    /// Positions of a line from one row of the output to the next. The line has more of them than the output if it goes on
    /// from row to row of the input.
    wide: usize,
}

/// A strip.
struct Strip {
    line: usize,
    /// The first position in the line, and how many the strip before has.
    first: usize,
    repeated: usize,
}

impl Strips {
    /// Those with the fewest tiles: lines that are the rows of the output, or one line that goes through all rows of the input.
    fn of(output: [usize; 2], stride: [usize; 2], input_width: usize) -> Self {
        let of_rows = Self::new(output[0], output[1], output[1]);
        if stride != [1, 1] || output.contains(&0) {
            return of_rows;
        }
        let through = Self::new(1, (output[0] - 1) * input_width + output[1], input_width);
        if through.count() < of_rows.count() { through } else { of_rows }
    }

    fn new(lines: usize, line: usize, wide: usize) -> Self {
        let of_line = line.div_ceil(ROWS).max(1);
        Self { lines, line, of_line, rows: line.div_ceil(of_line), wide }
    }

    fn count(&self) -> usize {
        self.lines * self.of_line
    }

    fn get(&self, index: usize) -> Strip {
        let (line, place) = (index / self.of_line, index % self.of_line * self.rows);
        let first = place.min(self.line - self.rows);
        Strip { line, first, repeated: place - first }
    }
}

/// The way through the bytes of a window: parts, runs of them, and rows of runs.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Steps {
    rows: usize,
    runs: usize,
    parts: usize,
    /// Bytes of the data and of the weights from one part to the next.
    data_bytes: usize,
    weights_bytes: usize,
    /// Bytes of the data from behind the last part of a run to the next run, and from behind the last run to the next row.
    run_jump: usize,
    row_jump: usize,
    /// Bytes of the weights that are left out behind each row.
    weights_jump: usize,
    /// Bytes of a part.
    part_bytes: usize,
}

impl Steps {
    /// Rows and runs of so many parts of so many bytes. Rows, runs and parts lie so many bytes apart, parts side by side if it
    /// is not told.
    fn new(
        [rows, runs]: [usize; 2],
        [parts, part_bytes]: [usize; 2],
        [row, run]: [usize; 2],
        apart: Option<usize>,
    ) -> Self {
        let data_bytes = apart.unwrap_or(part_bytes);
        Self {
            rows,
            runs,
            parts,
            data_bytes,
            weights_bytes: part_bytes * BLOCK,
            run_jump: run.wrapping_sub(parts.wrapping_mul(data_bytes)),
            row_jump: row.wrapping_sub(run.wrapping_mul(runs)),
            weights_jump: 0,
            part_bytes,
        }
    }

    /// The same through so many of all runs of each row.
    fn through(self, runs: usize) -> Self {
        let left_out = self.runs - runs;
        let run = self.run_jump.wrapping_add(self.parts.wrapping_mul(self.data_bytes));
        Self {
            runs,
            row_jump: self.row_jump.wrapping_add(run.wrapping_mul(left_out)),
            weights_jump: self.parts * self.weights_bytes * left_out,
            ..self
        }
    }

    /// Steps of a window.
    fn count(&self) -> usize {
        self.rows * self.runs * self.parts
    }
}

/// What the instructions are told of the tiles: sums, two of data, two of weights.
#[derive(Debug)]
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Configuration {
    fn new(rows: usize, part_bytes: usize) -> Self {
        let (mut bytes, mut counts) = ([0; 16], [0; 16]);
        bytes[..4].fill(ROW_BYTES as u16);
        counts[..4].fill(rows as u8);
        bytes[4..6].fill(part_bytes as u16);
        counts[4..6].fill(rows as u8);
        bytes[6..8].fill(ROW_BYTES as u16);
        counts[6..8].fill((part_bytes / QUAD) as u8);
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: bytes, rows: counts }
    }
}

/// The sums of two strips in two blocks each: `[strip, block, row, 16 channels]`.
#[derive(Debug)]
#[repr(C, align(64))]
struct TileSums([i32; 4 * ROWS * BLOCK]);

/// What the sums of two blocks begin with.
#[derive(Debug)]
#[repr(C, align(64))]
struct Start([i32; 2 * BLOCK]);

/// One or two strips, and one or two blocks of outputs.
struct Products<'p> {
    data: [*const u8; 2],
    /// Bytes of the data from one row of a tile to the next.
    row_stride: usize,
    weights: [*const i8; 2],
    /// Weights of the next blocks, of which each step asks for [`ASKED_BYTES`].
    next: *const i8,
    steps: &'p Steps,
    start: &'p Start,
    /// Whether sums begin with the start, and not with what was stored.
    is_first: bool,
}

/// Whether tiles go through the windows of a job: each row of taps is one run of whole parts, or filled up to such.
fn fits(job: &Job<'_>) -> bool {
    let weights = job.weights;
    let [_, _, high, wide, inputs] = weights.shape;
    // Other layouts may have one run of lanes, beside those of the next tap, which is read in whole parts.
    let run = wide * weights.lanes;
    let is_one_run = weights.bytes_of(inputs) == weights.lanes && (wide == 1 || job.view.dilation[1] == 1);
    high * wide > 0 && job.parts[1] == 1 && (weights.layout.is_for_tiles() || (is_one_run && filled(run) == run))
}

impl<'j, 'a> Tiles<'j, 'a> {
    /// Those of a job, where the machine has them and they fit its data.
    pub(super) fn of(job: &'j Job<'a>) -> Option<Self> {
        let weights = job.weights;
        let [_, _, high, wide, inputs] = weights.shape;
        // Few positions of other layouts are computed one after the other.
        let are_many = weights.layout.is_for_tiles() || job.positions >= LEAST_POSITIONS;
        // Taps of tiles are those of the weights.
        let has_all = job.taps == [0..high, 0..wide];
        if !(fits(job) && are_many && has_all && has_amx(job.isa, weights.element())) {
            return None;
        }
        let view = &job.view;
        let (lanes, apart) = (weights.lanes, weights.apart);
        let row = view.dilation[0] * view.input[1] * apart;
        let (lane_runs, of_lanes) = (weights.bytes_of(inputs) / lanes, job.volume * apart);
        let steps = if wide == 1 || view.dilation[1] == 1 {
            Steps::new([high, lane_runs], parts_of(wide * lanes), [row, of_lanes], None)
        } else {
            Steps::new([high, wide], [lane_runs, lanes], [row, view.dilation[1] * apart], Some(of_lanes))
        };
        let strips = Strips::of(view.output, view.stride, view.input[1]);
        Some(Self { job, strips, steps, row_stride: view.stride[1] * apart })
    }

    fn is_bf16(&self) -> bool {
        self.job.weights.element() == Element::Bf16
    }

    /// Computes everything.
    pub(super) fn run(&self) {
        let (job, strips) = (self.job, self.strips.count());
        let blocks = job.weights.blocks();
        let together = if job.reads.are_shared(blocks, 2) { 2 } else { 1 };
        let pairs = blocks.div_ceil(together);
        let of_two = job.weights.shape[1] * self.steps.count() * STEP_NANOSECONDS + END_NANOSECONDS;
        let run = (TASK_NANOSECONDS / of_two).max(1).saturating_mul(2);
        let runs = strips.div_ceil(run);
        let run = strips.div_ceil(runs).next_multiple_of(2);
        let runs = strips.div_ceil(run);
        // Tasks that follow each other take the positions of one block, or the blocks of one run of positions, whichever reads
        // less from far away.
        let (data, values) = (job.image_bytes, job.weights.values.len());
        let of_blocks = pairs.saturating_mul(data).saturating_add(values);
        let of_runs = runs.saturating_mul(values).saturating_add(data);
        let are_blocks_inner = data > NEAR_BYTES && of_runs < of_blocks;
        let planes = job.view.batch * job.parts[0];
        let work = (planes * pairs * strips.div_ceil(2)).saturating_mul(of_two) as u64;
        parallel_for(planes * pairs * runs, 1, work, |range| {
            for task in range {
                let (plane, rest) = (task / (pairs * runs), task % (pairs * runs));
                let (pair, run_index) = match are_blocks_inner {
                    true => (rest % pairs, rest / pairs),
                    false => (rest / runs, rest % runs),
                };
                let first = pair * together;
                let span = run_index * run..strips.min((run_index + 1) * run);
                self.span(plane, [first, together.min(blocks - first)], span);
            }
        });
    }

    /// Computes strips of one or two blocks of a plane of an image.
    fn span(&self, plane: usize, [block, blocks]: [usize; 2], strips: Range<usize>) {
        let job = self.job;
        let (image, plane) = (plane / job.parts[0], plane % job.parts[0]);
        let [_, deep, high, wide, _] = job.weights.shape;
        // The planes have what lies above and below the input, but not what lies in front of it and behind.
        let in_depth = job.windows[0].map_or(0..deep, |depth| depth.inside(job.first_window + plane));
        let mut first = image * job.image_bytes + job.read_from(block);
        // Where no tap lies inside the input, nothing is read.
        if !in_depth.is_empty() {
            first += plane * job.part_bytes[0] + in_depth.start * job.deeper - job.before;
        }
        let (mut steps, mut first_weights) = (self.steps, block * job.weights.block_bytes());
        // Runs of steps are those of channels but where taps across lie apart.
        let has_runs = job.weights.layout == CodeLayout::TileBlocks && (wide == 1 || job.view.dilation[1] == 1);
        let used = job.reads.used(block..block + blocks, job.weights.shape[0]);
        if let Some(used) = used.filter(|_| has_runs) {
            first += used.start * job.volume * job.weights.apart;
            first_weights += used.start * job.weights.order.run * QUAD * BLOCK;
            steps = steps.through(used.len());
        }
        let channel = block * BLOCK;
        let strides = [job.position_stride, job.block_stride];
        let parts_of_end = (job.scaling, job.epilogue, &job.output);
        let mut ending = Ending::new(job.isa, parts_of_end, channel, [blocks, job.channels - channel], strides);
        let sums = job.weights.sums(block, &[in_depth.clone(), 0..high, job.taps[1].clone()]);
        let span = Span {
            tiles: self,
            input: job.input[first..].as_ptr(),
            in_depth,
            weights: job.weights.values[first_weights..].as_ptr(),
            steps,
            start: &Start(sums.map(|sum| job.scaling.zero.wrapping_mul(sum).wrapping_neg())),
            offset: job.first + image * job.image_stride + block * job.block_stride + plane * job.part_stride[0],
            blocks,
            strips,
            ending: &mut ending,
        };
        let configuration = Configuration::new(self.strips.rows, self.steps.part_bytes);
        // SAFETY: the job was checked: windows lie inside the planes, with the bytes that runs are filled up with behind them,
        // and tasks write disjoint parts of the output. The machine has the instructions, or there were no tiles.
        unsafe {
            instructions::configure(&configuration);
            dispatch_wide(self.is_bf16(), span);
            instructions::release();
        }
    }
}

/// Strips of one or two blocks of outputs.
struct Span<'s, 'j, 'a> {
    tiles: &'s Tiles<'j, 'a>,
    /// The first window of the plane, from its first tap in depth that lies inside the input on, those taps, and the weights
    /// of the first block.
    input: *const u8,
    in_depth: Range<usize>,
    weights: *const i8,
    steps: Steps,
    start: &'s Start,
    /// The element of the output that the first position is.
    offset: usize,
    blocks: usize,
    strips: Range<usize>,
    ending: &'s mut Ending<'a>,
}

impl DotKernel for Span<'_, '_, '_> {
    #[inline(always)]
    unsafe fn run<D: Dots>(mut self, d: D) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.blocks {
                2 => self.blocks::<D, 2>(d),
                _ => self.blocks::<D, 1>(d),
            }
        }
    }
}

impl Span<'_, '_, '_> {
    /// # Safety
    /// The pointers lead to what the job asks for, the tiles are configured, and there are so many blocks.
    #[inline(always)]
    unsafe fn blocks<D: Dots, const BLOCKS: usize>(&mut self, d: D) {
        let (tiles, view) = (self.tiles, &self.tiles.job.view);
        let apart = tiles.job.weights.apart;
        let block_bytes = tiles.job.weights.block_bytes();
        let weights = [self.weights, self.weights.wrapping_add((BLOCKS - 1) * block_bytes)];
        let (row_stride, steps, start) = (tiles.row_stride, self.steps, self.start);
        let (deeper, deep_bytes) = (tiles.job.deeper, tiles.job.weights.shape[2] * tiles.job.weights.row_bytes());
        let mut sums = MaybeUninit::<TileSums>::uninit();
        let sums = sums.as_mut_ptr();
        for pair in self.strips.clone().step_by(2) {
            let count = 2.min(self.strips.end - pair);
            let strips = [pair, pair + count - 1].map(|index| tiles.strips.get(index));
            // Strips together ask for the weights of the next blocks, which come from far while these are used.
            let asked = pair / 2 * self.in_depth.len() * steps.count() * ASKED_BYTES;
            let is_left = asked < BLOCKS * block_bytes;
            let mut next = self.weights.wrapping_add(if is_left { BLOCKS * block_bytes + asked } else { 0 });
            // SAFETY: the caller's promise; the sums of so many strips and blocks are stored there.
            unsafe {
                for (index, tap) in self.in_depth.clone().enumerate() {
                    let data = strips.each_ref().map(|strip| {
                        let place = strip.line * view.stride[0] * view.input[1] + strip.first * view.stride[1];
                        self.input.wrapping_add(index * deeper + place * apart)
                    });
                    let weights = weights.map(|weights| weights.wrapping_add(tap * deep_bytes));
                    let is_first = index == 0;
                    let products = Products { data, row_stride, weights, next, steps: &steps, start, is_first };
                    match tiles.is_bf16() {
                        true => instructions::halves(count, BLOCKS, &products, sums),
                        false => instructions::bytes(count, BLOCKS, &products, sums),
                    }
                    next = next.wrapping_add(steps.count() * ASKED_BYTES);
                }
                if self.in_depth.is_empty() {
                    for place in 0..4 * ROWS {
                        let from = start.0.as_ptr().add(place / ROWS % 2 * BLOCK);
                        std::ptr::copy_nonoverlapping(from, sums.cast::<i32>().add(place * BLOCK), BLOCK);
                    }
                }
                for (index, strip) in strips.iter().enumerate().take(count) {
                    let sums = sums.cast::<i32>().wrapping_add(index * 2 * ROWS * BLOCK);
                    self.store::<D, BLOCKS>(d, strip, sums);
                }
            }
        }
    }

    /// Stores what becomes of the sums of a strip.
    ///
    /// # Safety
    /// The sums are those of a strip of the job.
    #[inline(always)]
    unsafe fn store<D: Dots, const BLOCKS: usize>(&mut self, d: D, strip: &Strip, sums: *const i32) {
        let Strips { rows, wide, .. } = self.tiles.strips;
        let (job, width) = (self.tiles.job, self.tiles.job.view.output[1]);
        let (mut slot, last) = (strip.first + strip.repeated, strip.first + rows);
        while slot < last {
            let (row, column) = (strip.line + slot / wide, slot % wide);
            if column >= width {
                slot += wide - column;
                continue;
            }
            let count = (width - column).min(last - slot);
            let offset = self.offset + (row * width + column) * job.position_stride;
            // SAFETY: the caller's promise: the positions lie in the output, and their sums in the strip's.
            unsafe {
                let sums = sums.add((slot - strip.first) * BLOCK);
                store_run::<D, BLOCKS>(d, &self.ending.at(offset), sums, count);
                self.ending.apply(count, offset);
            }
            slot += count;
        }
    }
}

/// Stores what becomes of the sums of positions that follow each other.
///
/// # Safety
/// So many sums lie in a strip from there on, and the end was made for so many positions.
#[inline(always)]
unsafe fn store_run<D: Dots, const BLOCKS: usize>(d: D, end: &End<'_>, sums: *const i32, count: usize) {
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while count - at >= 8 {
            store_positions::<D, 8, BLOCKS>(d, end, sums, at);
            at += 8;
        }
        if count - at >= 4 {
            store_positions::<D, 4, BLOCKS>(d, end, sums, at);
            at += 4;
        }
        while at < count {
            store_positions::<D, 1, BLOCKS>(d, end, sums, at);
            at += 1;
        }
    }
}

/// Stores what becomes of the sums of so many positions from one on.
///
/// # Safety
/// As of [`store_run`].
#[inline(always)]
unsafe fn store_positions<D: Dots, const POSITIONS: usize, const BLOCKS: usize>(
    d: D,
    end: &End<'_>,
    sums: *const i32,
    at: usize,
) {
    let (s, ends) = (d.simd(), Ends::<POSITIONS, BLOCKS>(end));
    let mut tile = [[s.splat_i(0); BLOCKS]; POSITIONS];
    for (position, tile) in tile.iter_mut().enumerate() {
        for (block, sum) in tile.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sum = s.bits(unsafe { s.load(sums.add(block * ROWS * BLOCK + (at + position) * BLOCK).cast()) });
        }
    }
    let ended = ends.begin::<D>(at);
    // SAFETY: the caller's promise.
    unsafe { ends.store(d, ended, &tile) };
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod instructions {
    use super::{ASKED_BYTES, Configuration, Products, TileSums};
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;
    use std::sync::OnceLock;

    /// The request of a process for a part of the processor's state, and the part that tiles are.
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;

    /// Whether the machine has products of bytes and of bf16 in tiles, and the system lets this process use them, for which
    /// it is asked once.
    pub(super) fn usable() -> [bool; 2] {
        static USABLE: OnceLock<[bool; 2]> = OnceLock::new();
        *USABLE.get_or_init(|| {
            // This register of leaf 7 tells of tiles in bit 24, of their products of bytes in bit 25, and of bf16 in bit 22.
            // SAFETY: every x86-64 has the instruction. Newer compilers know that.
            #[allow(unused_unsafe)]
            let features = unsafe { __cpuid_count(7, 0) }.edx;
            let has = [25, 22].map(|bit| features >> 24 & features >> bit & 1 == 1);
            // SAFETY: the call reads its arguments and nothing else.
            let is_permitted =
                || unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0;
            if has.contains(&true) && is_permitted() { has } else { [false; 2] }
        })
    }

    /// Shapes the tiles of this thread.
    ///
    /// # Safety
    /// Some tiles are [`usable`].
    pub(super) unsafe fn configure(configuration: &Configuration) {
        // SAFETY: the instruction reads the 64 bytes of the configuration. No other code uses tiles.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) std::ptr::from_ref(configuration), options(nostack, readonly, preserves_flags));
        }
    }

    /// Gives the tiles of this thread back, so that nobody saves them.
    ///
    /// # Safety
    /// Some tiles are [`usable`].
    pub(super) unsafe fn release() {
        // SAFETY: the instruction touches nothing but the tiles.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }

    /// The way through a window, on which `step` computes its products. Sums are tiles 0 to 3, data 4 and 5, weights 6 and 7.
    /// The fields of the steps are read by their places.
    ///
    /// Each step asks for eight lines of the next weights, and where it has four products for its own weights of the next step.
    /// What it asks for stands behind the loads of tiles: where another thread has the other half of the core, a product that
    /// directly follows its load takes 1.3 times as long as one with a few instructions between.
    macro_rules! walk {
        ([$($begin:expr),*] [$($again:expr),*] $step:tt $end:tt $products:expr, $sums:expr) => {
            match $products.is_first {
                true => walk!([$($begin),*] $step $end $products, $sums),
                false => walk!(["mov {line}, 64", $($again),*] $step $end $products, $sums),
            }
        };
        ([$($begin:expr),*] [$($step:expr),*] [$($end:expr),*] $products:expr, $sums:expr) => {{
            let products: &Products<'_> = $products;
            asm!(
                $($begin,)*
                "mov {line}, 64",
                "mov {rows}, [{steps}]",
                "2:",
                "mov {runs}, [{steps} + 8]",
                "3:",
                "mov {parts}, [{steps} + 16]",
                "4:",
                $($step,)*
                "add {next}, 512",
                "add {data}, [{steps} + 24]",
                "add {weights}, [{steps} + 32]",
                "dec {parts}",
                "jnz 4b",
                "add {data}, [{steps} + 40]",
                "dec {runs}",
                "jnz 3b",
                "add {data}, [{steps} + 48]",
                "add {weights}, [{steps} + 56]",
                "dec {rows}",
                "jnz 2b",
                $($end,)*
                data = inout(reg) products.data[0] => _,
                second = in(reg) products.data[1].addr().wrapping_sub(products.data[0].addr()),
                stride = in(reg) products.row_stride,
                weights = inout(reg) products.weights[0] => _,
                next = inout(reg) products.next => _,
                beside = in(reg) products.weights[1].addr().wrapping_sub(products.weights[0].addr()),
                steps = in(reg) std::ptr::from_ref(products.steps),
                sums = in(reg) $sums,
                // Rows of what sums begin with are one.
                line = inout(reg) 0usize => _,
                rows = out(reg) _,
                runs = out(reg) _,
                parts = inout(reg) std::ptr::from_ref(products.start) => _,
                at = out(reg) _,
                options(nostack)
            );
        }};
    }

    /// Asks for lines so many bytes from where a register leads to: `t0` into the first cache, `t1` into the second.
    macro_rules! ask {
        ($into:literal, $from:literal, $places:literal) => {
            concat!(".irp place, ", $places, "\n", "prefetch", $into, " [{", $from, "} + \\place]\n", ".endr")
        };
    }

    /// The function that sums the products of one or two strips with one or two blocks, by an instruction.
    macro_rules! products {
        ($name:ident, $dot:literal, $of:literal) => {
            #[doc = concat!("Sums products of ", $of, " of one or two strips with one or two blocks.")]
            ///
            /// # Safety
            /// Such tiles are [`usable`] and configured, and the pointers lead to what the steps ask for in every row.
            #[inline(always)]
            pub(super) unsafe fn $name(strips: usize, blocks: usize, products: &Products<'_>, sums: *mut TileSums) {
                const { assert!(ASKED_BYTES == 512, "a step asks for so much") };
                // SAFETY: the caller's promise: nothing beside the tiles is read, and the sums of as many are written.
                // What is asked for in advance may lie anywhere.
                unsafe {
                    match (strips, blocks) {
                        (2, 2) => walk!(
                            ["tileloadd tmm0, [{parts} + {line}]", "tileloadd tmm1, [{parts} + {line} + 64]",
                             "tileloadd tmm2, [{parts} + {line}]", "tileloadd tmm3, [{parts} + {line} + 64]"]
                            ["tileloadd tmm0, [{sums} + {line}]", "tileloadd tmm1, [{sums} + {line} + 1024]",
                             "tileloadd tmm2, [{sums} + {line} + 2048]", "tileloadd tmm3, [{sums} + {line} + 3072]"]
                            ["tileloadd tmm4, [{data} + {stride}]",
                             ask!("t1", "next", "0, 64"), ask!("t0", "weights", "1024, 1088, 1152, 1216"),
                             "tileloadd tmm6, [{weights} + {line}]",
                             ask!("t1", "next", "128, 192"),
                             ask!("t0", "weights", "1280, 1344, 1408, 1472, 1536, 1600, 1664, 1728"),
                             concat!($dot, " tmm0, tmm4, tmm6"),
                             ask!("t0", "weights", "1792, 1856, 1920, 1984"),
                             "lea {at}, [{weights} + {beside}]", "tileloadd tmm7, [{at} + {line}]",
                             ask!("t0", "at", "1024, 1088, 1152, 1216, 1280, 1344, 1408, 1472"),
                             concat!($dot, " tmm1, tmm4, tmm7"),
                             ask!("t0", "at", "1536, 1600, 1664, 1728, 1792, 1856, 1920, 1984"),
                             "lea {at}, [{data} + {second}]", "tileloadd tmm5, [{at} + {stride}]",
                             ask!("t1", "next", "256, 320, 384, 448"),
                             concat!($dot, " tmm2, tmm5, tmm6"), concat!($dot, " tmm3, tmm5, tmm7")]
                            ["tilestored [{sums} + {line}], tmm0", "tilestored [{sums} + {line} + 1024], tmm1",
                             "tilestored [{sums} + {line} + 2048], tmm2", "tilestored [{sums} + {line} + 3072], tmm3"]
                            products, sums
                        ),
                        (2, _) => walk!(
                            ["tileloadd tmm0, [{parts} + {line}]", "tileloadd tmm2, [{parts} + {line}]"]
                            ["tileloadd tmm0, [{sums} + {line}]", "tileloadd tmm2, [{sums} + {line} + 2048]"]
                            ["tileloadd tmm4, [{data} + {stride}]", ask!("t1", "next", "0, 64, 128"),
                             "tileloadd tmm6, [{weights} + {line}]", ask!("t1", "next", "192, 256, 320"),
                             concat!($dot, " tmm0, tmm4, tmm6"),
                             "lea {at}, [{data} + {second}]", "tileloadd tmm5, [{at} + {stride}]",
                             ask!("t1", "next", "384, 448"),
                             concat!($dot, " tmm2, tmm5, tmm6"), "/* {beside} */"]
                            ["tilestored [{sums} + {line}], tmm0", "tilestored [{sums} + {line} + 2048], tmm2"]
                            products, sums
                        ),
                        (_, 2) => walk!(
                            ["tileloadd tmm0, [{parts} + {line}]", "tileloadd tmm1, [{parts} + {line} + 64]"]
                            ["tileloadd tmm0, [{sums} + {line}]", "tileloadd tmm1, [{sums} + {line} + 1024]"]
                            ["tileloadd tmm4, [{data} + {stride}]", ask!("t1", "next", "0, 64, 128"),
                             "tileloadd tmm6, [{weights} + {line}]", ask!("t1", "next", "192, 256, 320"),
                             concat!($dot, " tmm0, tmm4, tmm6"),
                             "lea {at}, [{weights} + {beside}]", "tileloadd tmm7, [{at} + {line}]",
                             ask!("t1", "next", "384, 448"),
                             concat!($dot, " tmm1, tmm4, tmm7"), "/* {second} */"]
                            ["tilestored [{sums} + {line}], tmm0", "tilestored [{sums} + {line} + 1024], tmm1"]
                            products, sums
                        ),
                        _ => walk!(
                            ["tileloadd tmm0, [{parts} + {line}]"]
                            ["tileloadd tmm0, [{sums} + {line}]"]
                            ["tileloadd tmm4, [{data} + {stride}]", ask!("t1", "next", "0, 64, 128, 192"),
                             "tileloadd tmm6, [{weights} + {line}]", ask!("t1", "next", "256, 320, 384, 448"),
                             concat!($dot, " tmm0, tmm4, tmm6"), "/* {at} {second} {beside} */"]
                            ["tilestored [{sums} + {line}], tmm0"]
                            products, sums
                        ),
                    }
                }
            }
        };
    }

    products!(bytes, "tdpbusd", "bytes");
    products!(halves, "tdpbf16ps", "bf16");
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod instructions {
    use super::{Configuration, Products, TileSums};

    /// Other machines have no tiles, or are not known to let a process use them.
    pub(super) fn usable() -> [bool; 2] {
        [false; 2]
    }

    /// # Safety
    /// Never called.
    pub(super) unsafe fn configure(_: &Configuration) {}

    /// # Safety
    /// Never called.
    pub(super) unsafe fn release() {}

    /// # Safety
    /// Never called.
    pub(super) unsafe fn bytes(_: usize, _: usize, _: &Products<'_>, _: *mut TileSums) {}

    /// # Safety
    /// Never called.
    pub(super) unsafe fn halves(_: usize, _: usize, _: &Products<'_>, _: *mut TileSums) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::blocked_len;
    use crate::quantized::{
        CodePlanes, Encodings, QuantizedEpilogue, QuantizedOutput, QuantizedWeights, Scaling, quantized_convolution,
        quantized_product,
    };
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    #[test]
    fn parts_hold_what_is_read_and_are_rows_of_tiles() {
        for bytes in (4..2000).step_by(4) {
            let [parts, part] = parts_of(bytes);
            assert!(part <= ROW_BYTES && part.is_multiple_of(QUAD) && parts * part >= bytes, "{bytes}");
            assert!(filled(bytes) < bytes + ROW_BYTES, "{bytes}");
        }
        assert_eq!([48, 64, 96, 128, 192, 144].map(filled), [48, 64, 96, 128, 192, 144]);
    }

    /// Whatever the sizes, each position of the output belongs to one strip alone, at its place of the input.
    #[test]
    fn strips_cover_each_position_once() {
        for (high, wide) in (1..20).flat_map(|high| (1..40).map(move |wide| (high, wide))) {
            for (stride, more) in [([1, 1], 0), ([1, 1], 2), ([2, 2], 1), ([1, 3], 0)] {
                let input_width = (wide - 1) * stride[1] + 1 + more;
                let strips = Strips::of([high, wide], stride, input_width);
                assert!(strips.rows <= ROWS, "{strips:?}");
                let mut found = vec![0; high * wide];
                for index in 0..strips.count() {
                    let Strip { line, first, repeated } = strips.get(index);
                    for slot in first + repeated..first + strips.rows {
                        let (row, column) = (line + slot / strips.wide, slot % strips.wide);
                        // What the kernel reads for the slot, and what the position's window begins with.
                        let read = line * stride[0] * input_width + slot * stride[1];
                        if column < wide {
                            assert_eq!(read, row * stride[0] * input_width + column * stride[1], "{strips:?}");
                            found[row * wide + column] += 1;
                        }
                    }
                }
                assert!(found.iter().all(|count| *count == 1), "{high} {wide} {strips:?}");
            }
        }
    }

    fn machine() -> Option<Isa> {
        Isa::available().find(|isa| has_amx(*isa, Element::Byte))
    }

    /// Bytes that end where the memory of the process does, so that reading on would end it.
    #[cfg(target_os = "linux")]
    struct Guarded {
        pages: *mut u8,
        size: usize,
        len: usize,
    }

    #[cfg(target_os = "linux")]
    impl Guarded {
        fn new(bytes: &[u8]) -> Self {
            const PAGE: usize = 4096;
            let size = bytes.len().next_multiple_of(PAGE) + PAGE;
            // SAFETY: new pages, of which the last one becomes inaccessible, and the bytes go to the end of the others.
            unsafe {
                let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                let pages = libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0).cast::<u8>();
                assert_ne!(pages.addr(), usize::MAX);
                assert_eq!(libc::mprotect(pages.add(size - PAGE).cast(), PAGE, libc::PROT_NONE), 0);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), pages.add(size - PAGE - bytes.len()), bytes.len());
                Self { pages, size: size - PAGE, len: bytes.len() }
            }
        }

        fn bytes(&self) -> &[u8] {
            // SAFETY: so many bytes were written at the end of the accessible pages.
            unsafe { std::slice::from_raw_parts(self.pages.add(self.size - self.len), self.len) }
        }
    }

    /// Many channels, and their sums bit by bit as the other kernels have them.
    #[cfg(target_os = "linux")]
    #[test]
    fn tiles_give_the_sums_of_the_other_kernels() {
        let Some(isa) = machine() else { return };
        let mut random = Random::new(3);
        let sizes = [17, 32, 48, 64, 65, 80, 96, 130, 200].map(|inputs| [1, inputs, 0]);
        let sizes_of_groups = [[3, 24, 24], [2, 40, 20], [4, 32, 32], [5, 17, 9], [2, 64, 48]];
        for [groups, inputs, of_group] in sizes.into_iter().chain(sizes_of_groups) {
            for (kernel, stride, dilation) in [(1, 1, 1), (1, 2, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2), (5, 1, 1)] {
                let outputs = if groups == 1 { random.between(1, 70) } else { groups * of_group };
                let (inputs, size) = (groups * inputs, [1, random.between(9, 20), random.between(9, 20)]);
                let [kernel, stride, dilation] = [kernel, stride, dilation].map(|step| [1, step, step]);
                let pad = [0, kernel[1] / 2, kernel[2] / 2];
                let geometry =
                    ConvolutionGeometry::new(2, groups, inputs, outputs, size, kernel, stride, dilation, pad, pad)
                        .unwrap();
                let codes: Vec<u8> =
                    (0..blocked_len(2, inputs, size[1] * size[2])).map(|_| random.next() as u8).collect();
                let filter: Vec<i8> = (0..geometry.weights_len()).map(|_| random.next() as i8).collect();
                let scales: Vec<f32> = (0..outputs).map(|_| random.value()).collect();
                let scaling = Scaling { zero: 100, scales: &scales };
                let len = blocked_len(2, outputs, geometry.output_len() / 2 / outputs);
                let run = |layout| {
                    let planes = CodePlanes::of_convolution(&geometry, layout).unwrap();
                    let weights = QuantizedWeights::of_convolution(&geometry, layout, &filter).unwrap();
                    let mut input = vec![77; planes.len()];
                    planes.pad(100, &codes, &mut input).unwrap();
                    let (input, mut output) = (Guarded::new(&input), vec![f32::NAN; len]);
                    let (target, epilogue) = (QuantizedOutput::Values(&mut output), QuantizedEpilogue::default());
                    quantized_convolution(isa, &geometry, &weights, &scaling, input.bytes(), target, &epilogue)
                        .unwrap();
                    output
                };
                let layout = if groups == 1 { CodeLayout::Tiles } else { CodeLayout::TileBlocks };
                let takes = groups == 1 || (kernel[2] > 1 && dilation[2] == 1);
                assert_eq!(tile_layout(isa, &geometry), takes.then_some(layout), "{geometry:?}");
                let expected = run(CodeLayout::Blocks);
                assert!(run(layout) == expected, "{geometry:?}");
                assert!(in_pool(2, || run(layout)) == expected, "{geometry:?}");
            }
        }
    }

    #[test]
    fn weights_of_another_dilation_are_refused() {
        let Some(isa) = machine() else { return };
        let of = |dilation: usize| {
            let (kernel, dilation, pad) = ([1, 1, 5], [1, 1, dilation], [0, 0, 2 * dilation]);
            ConvolutionGeometry::new(1, 1, 32, 16, [1, 8, 16], kernel, [1; 3], dilation, pad, pad).unwrap()
        };
        for (packed, used) in [(1, 2), (2, 1)] {
            let weights = QuantizedWeights::of_convolution(&of(packed), CodeLayout::Tiles, &[1; 32 * 16 * 5]).unwrap();
            let planes = CodePlanes::of_convolution(&of(used), CodeLayout::Tiles).unwrap();
            let (input, mut output) = (vec![0; planes.len()], vec![0.0; of(used).output_len()]);
            let (target, scaling) = (QuantizedOutput::Values(&mut output), Scaling { zero: 0, scales: &[1.0; 16] });
            let epilogue = QuantizedEpilogue::default();
            let refused = quantized_convolution(isa, &of(used), &weights, &scaling, &input, target, &epilogue);
            assert_eq!(refused.unwrap_err().argument, "weights");
        }
    }

    /// Rows of a matrix lie in memory that ends behind them, whether tiles read them or not.
    #[cfg(target_os = "linux")]
    #[test]
    fn products_read_their_rows_alone() {
        let Some(isa) = machine() else { return };
        let mut random = Random::new(4);
        for (rows, k, n) in [(1, 64, 40), (5, 128, 16), (16, 96, 33), (17, 64, 64), (45, 192, 70), (40, 100, 20)] {
            let input: Vec<u8> = (0..rows * k).map(|_| random.next() as u8).collect();
            let matrix: Vec<i8> = (0..k * n).map(|_| random.next() as i8).collect();
            let weights = QuantizedWeights::of_matrix([k, n], &matrix, [n, 1]).unwrap();
            let expected: Vec<u8> = (0..rows * n)
                .map(|index| {
                    let term = |i: usize| i32::from(input[index / n * k + i]) * i32::from(matrix[i * n + index % n]);
                    (((0..k).map(term).sum::<i32>() as f32) / 1024.0).round_ties_even().clamp(0.0, 255.0) as u8
                })
                .collect();
            let (input, mut output) = (Guarded::new(&input), vec![0; rows * n]);
            let encodings = Encodings::new(&[0.0], &[255.0 * 1024.0], 255.0).unwrap();
            let scaling = Scaling { zero: 0, scales: &vec![1.0; n] };
            let target = QuantizedOutput::Codes(&mut output, &encodings);
            quantized_product(isa, rows, &weights, &scaling, input.bytes(), target, &QuantizedEpilogue::default())
                .unwrap();
            assert_eq!(output, expected, "{rows} {k} {n}");
        }
    }
}
