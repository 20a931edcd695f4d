//! Steady state allocates nothing: counted by an allocator of our own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ovir::tensor::npz::read_npz;
use ovir::{CompileOptions, Core, InferRequest, Model};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn counted(work: impl FnOnce()) -> (usize, usize) {
    let before = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    work();
    (ALLOCATIONS.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1)
}

fn open(folder: &str) -> (Model, InferRequest, std::path::PathBuf) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let core = Core::new();
    let model = core.read_model(folder.join("model.xml")).unwrap();
    let options = CompileOptions { threads: 1, ..CompileOptions::default() };
    let request = core.compile_model(&model, &options).unwrap().create_infer_request();
    (model, request, folder)
}

fn set_inputs(model: &Model, request: &mut InferRequest, file: &Path) {
    let ports = model.inputs();
    let hint = |name: &str| model.input_index(name).ok().map(|i| ports[i].element_type);
    for (name, tensor) in read_npz(Cursor::new(std::fs::read(file).unwrap()), hint).unwrap() {
        request.set_tensor(&name, tensor).unwrap();
    }
}

/// One test, because other tests on other threads would be counted too.
#[test]
fn steady_state_allocates_nothing() {
    // A classifier with a static shape.
    let (model, mut request, folder) = open("models/digits");
    set_inputs(&model, &mut request, &folder.join("inputs.npz"));
    for _ in 0..3 {
        request.infer().unwrap();
    }
    let digits = counted(|| request.infer().unwrap());

    // A state of 32 MB in which one row changes: the row is written in place.
    let (model, mut request, folder) = open("tests/models/kv_state_32mb");
    for step in 1..=3 {
        set_inputs(&model, &mut request, &folder.join(format!("inputs-{step}.npz")));
        request.infer().unwrap();
    }
    let state = counted(|| request.infer().unwrap());

    // A cache that grows by a token each step: every step has shapes of its own.
    let (model, mut request, folder) = open("tests/models/growing_decoder");
    set_inputs(&model, &mut request, &folder.join("inputs-2.npz"));
    for _ in 0..40 {
        request.infer().unwrap();
    }
    let mut growing = Vec::new();
    for _ in 0..20 {
        growing.push(counted(|| request.infer().unwrap()));
    }
    growing.sort_unstable();
    // Memory that grows does so by half, so most steps find what they need.
    let growing = growing[growing.len() / 2];

    let none = (0, 0);
    assert_eq!((digits, state, growing), (none, none, none), "allocations, bytes: digits, 32 MB state, growing cache");
}
