//! Timing of scatter kernels: `cargo bench -p ovir-kernels --bench scatter -- [filter]`.
//!
//! For each row, with one and with two threads: the 10th percentile of the time, that of a copy of the data by as many threads, taken in
//! turns with it, and the share of the limit: the copy and reading indices and updates at 20 GB/s.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

use std::time::Instant;

use ovir_kernels::movement::copy;
use ovir_kernels::scatter::{Combine, Element, IndexType, Places, Reduction, Scatter};

/// How indices are drawn.
#[derive(Clone, Copy)]
enum Draw {
    /// Each on its own.
    Random,
    /// Each on its own, in ascending order.
    Sorted,
    /// All the same.
    Same,
    /// One for each row of so many.
    Rows(usize),
    /// As [`Draw::Rows`], in ascending order.
    SortedRows(usize),
}

struct Row {
    name: &'static str,
    places: Places,
    combine: Combine,
    element: Element,
    draw: Draw,
    /// The size of the axis of index `i`.
    sizes: Vec<usize>,
    in_place: bool,
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    println!("{:<58} {:>3} {:>10} {:>10} {:>6}", "row", "", "us", "copy us", "limit");
    for row in rows().iter().filter(|row| row.name.contains(&filter)) {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let indices = indices(row, &mut random);
        let width = row.element.width();
        let data = vec![1u8; row.places.data_elements() * width];
        let updates = vec![1u8; row.places.update_elements() * width];
        let mut output = vec![0u8; data.len()];
        let reduction = Reduction { combine: row.combine, use_init: true };
        let scatter = Scatter { places: row.places, reduction, element: row.element, index_type: IndexType::I64 };
        let mut scratch = vec![0u8; scatter.scratch_len()];
        for threads in [1, 2] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let given = (!row.in_place).then_some(&data[..]);
            let (mut times, mut copies) = (Vec::new(), Vec::new());
            let began = Instant::now();
            while times.len() < 5 || (began.elapsed().as_millis() < 800 && times.len() < 400) {
                pool.install(|| {
                    let start = Instant::now();
                    scatter.run(given, &indices, &updates, &mut output, &mut scratch).unwrap();
                    times.push(start.elapsed());
                    let start = Instant::now();
                    copy(&data, &mut output).unwrap();
                    copies.push(start.elapsed());
                });
            }
            let low = |times: &mut Vec<std::time::Duration>| {
                times.sort();
                times[times.len() / 10].as_secs_f64() * 1e6
            };
            let (time, copy) = (low(&mut times), low(&mut copies));
            let limit = copy + (indices.len() + updates.len()) as f64 / 20e3;
            println!("{:<58} {threads}T {time:>10.1} {copy:>10.1} {:>5.0}%", row.name, 100.0 * limit / time);
        }
    }
}

fn next(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 16) as usize
}

fn indices(row: &Row, random: &mut u64) -> Vec<u8> {
    let count = row.places.indices();
    let size = |i: usize| row.sizes[i % row.sizes.len()];
    let mut drawn: Vec<usize> = match row.draw {
        Draw::Same => (0..count).map(|i| size(i) / 2).collect(),
        Draw::Random | Draw::Sorted => (0..count).map(|i| next(random) % size(i)).collect(),
        Draw::Rows(inner) | Draw::SortedRows(inner) => {
            (0..count / inner).flat_map(|_| vec![next(random) % size(0); inner]).collect()
        }
    };
    if matches!(row.draw, Draw::Sorted | Draw::SortedRows(_)) {
        if let [first, second] = row.sizes[..] {
            let mut flat: Vec<usize> = drawn.chunks_exact(2).map(|pair| pair[0] * second + pair[1]).collect();
            flat.sort_unstable();
            debug_assert!(flat.iter().all(|at| at / second < first));
            drawn = flat.iter().flat_map(|at| [at / second, at % second]).collect();
        } else {
            drawn.sort_unstable();
        }
    }
    drawn.iter().flat_map(|index| (*index as i64).to_le_bytes()).collect()
}

fn rows() -> Vec<Row> {
    let slices = |name, outer, size, inner, count, element| Row {
        name,
        places: Places::slices(outer, size, inner, count, false).unwrap(),
        combine: Combine::Replace,
        element,
        draw: Draw::Random,
        sizes: vec![size],
        in_place: false,
    };
    let elements = |name, data: [usize; 2], indices: [usize; 2], axis: usize, combine, element, draw| Row {
        name,
        places: Places::elements(&data, &indices, axis).unwrap(),
        combine,
        element,
        draw,
        sizes: vec![data[axis]],
        in_place: false,
    };
    let tuples = |name, sizes: &[usize], inner, count, combine, draw| Row {
        name,
        places: Places::tuples(sizes, inner, count).unwrap(),
        combine,
        element: Element::F32,
        draw,
        sizes: sizes.to_vec(),
        in_place: false,
    };
    let in_place = |row: Row| Row { in_place: true, ..row };
    let (none, sum) = (Combine::Replace, Combine::Sum);
    let (f32, f16, i64) = (Element::F32, Element::F16, Element::I64);
    let (wide, few, last) = ([100_000, 64], [15_625, 64], [100_000, 10]);
    vec![
        slices("SU rows 1KB [16,16] n=1", 1, 16, 16, 1, f32),
        slices("SU rows 64KB [256,64] n=4", 1, 256, 64, 4, f32),
        slices("SU rows 1MB [4096,64] n=16", 1, 4096, 64, 16, f32),
        slices("SU rows 16MB [65536,64] n=64", 1, 65536, 64, 64, f32),
        slices("SU rows 256MB [1048576,64] n=64", 1, 1 << 20, 64, 64, f32),
        slices("SU KV f32 [1,32,2048,128] ax2 n=1", 32, 2048, 128, 1, f32),
        slices("SU KV f32 [1,32,2048,128] ax2 n=64", 32, 2048, 128, 64, f32),
        slices("SU KV f16 [1,32,2048,128] ax2 n=1", 32, 2048, 128, 1, f16),
        slices("SU KV i64 [1,32,1024,128] ax2 n=16", 32, 1024, 128, 16, i64),
        in_place(slices("SU KV f32 in place n=1", 32, 2048, 128, 1, f32)),
        in_place(slices("SU KV f32 in place n=64", 32, 2048, 128, 64, f32)),
        elements("SEU sum f32 ax0 rows random", wide, few, 0, sum, f32, Draw::Rows(64)),
        elements("SEU sum f32 ax0 rows sorted", wide, few, 0, sum, f32, Draw::SortedRows(64)),
        elements("SEU sum f32 ax0 elements random", wide, few, 0, sum, f32, Draw::Random),
        elements("SEU sum f32 ax0 all equal", wide, few, 0, sum, f32, Draw::Same),
        elements("SEU sum f32 ax1 random", wide, last, 1, sum, f32, Draw::Random),
        elements("SEU sum f32 ax1 all equal", wide, last, 1, sum, f32, Draw::Same),
        elements("SEU sum f16 ax0 rows random", wide, few, 0, sum, f16, Draw::Rows(64)),
        elements("SEU sum f16 ax1 random", wide, last, 1, sum, f16, Draw::Random),
        elements("SEU mean f32 ax0 elements random", wide, few, 0, Combine::Mean, f32, Draw::Random),
        elements("SEU sum i64 ax0 rows random", wide, few, 0, sum, i64, Draw::Rows(64)),
        elements("SEU none f32 ax0 elements random", wide, few, 0, none, f32, Draw::Random),
        elements("SEU none f32 ax1 random", wide, last, 1, none, f32, Draw::Random),
        elements("SEU none i64 ax1 random", wide, last, 1, none, i64, Draw::Random),
        elements("SEU none f32 1KB [256] idx[16]", [1, 256], [1, 16], 1, none, f32, Draw::Random),
        elements("SEU sum f32 [1000000] idx[1000000]", [1, 1_000_000], [1, 1_000_000], 1, sum, f32, Draw::Random),
        elements("SEU sum f32 [16] idx[1000000] histogram", [1, 16], [1, 1_000_000], 1, sum, f32, Draw::Random),
        tuples("SND none f32 [65536,256] slices n=4096", &[65536], 256, 4096, none, Draw::Random),
        tuples("SND sum f32 [65536,256] slices n=4096", &[65536], 256, 4096, sum, Draw::Random),
        tuples("SND none f32 [4096,4096] elements n=1M random", &[4096, 4096], 1, 1 << 20, none, Draw::Random),
        tuples("SND none f32 [4096,4096] elements n=1M sorted", &[4096, 4096], 1, 1 << 20, none, Draw::Sorted),
        tuples("SND sum f32 [4096,4096] elements n=1M random", &[4096, 4096], 1, 1 << 20, sum, Draw::Random),
        tuples("SND none f32 1KB [16,16] slices n=4", &[16], 16, 4, none, Draw::Random),
        elements(
            "SEU sum f32 [556416,80] idx[481385,80] rows",
            [556_416, 80],
            [481_385, 80],
            0,
            sum,
            f32,
            Draw::Rows(80),
        ),
    ]
}
