// Talks to the module: the bytes of files into its slots, texts out of them. What the functions do is told in src/lib.rs.

const SLOT = { xml: 0, weights: 1, name: 2, input: 3, json: 4, human: 5, facts: 6, output: 7 };
const MODULE = "ovir_wasm.wasm";

let compiled = null;
let ovir = null;

/** The module, new after a failure: a panic ends an instance for good. */
async function instance() {
  compiled ??= await WebAssembly.compileStreaming(fetch(MODULE));
  ovir ??= (await WebAssembly.instantiate(compiled)).exports;
  return ovir;
}

function fill(slot, bytes) {
  const address = ovir.ovir_allocate(slot, bytes.byteLength);
  if (address === 0) throw new RangeError(`there is no memory for ${bytes.byteLength} bytes`);
  // Allocating may have replaced the buffer, so that the view is made afterwards.
  new Uint8Array(ovir.memory.buffer, address >>> 0, bytes.byteLength).set(bytes);
}

/** Reads a file into a slot piece by piece: weights are large, and one copy of them is enough. */
async function fillFrom(slot, file) {
  const address = ovir.ovir_allocate(slot, file.size) >>> 0;
  if (address === 0) throw new RangeError(`${file.name}: there is no memory for ${file.size} bytes`);
  const reader = file.stream().getReader();
  let place = address;
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    if (place + piece.value.byteLength > address + file.size) throw new RangeError(`${file.name}: the file grew`);
    new Uint8Array(ovir.memory.buffer, place, piece.value.byteLength).set(piece.value);
    place += piece.value.byteLength;
  }
}

function bytes(slot) {
  const start = ovir.ovir_pointer(slot) >>> 0;
  return new Uint8Array(ovir.memory.buffer, start, ovir.ovir_length(slot) >>> 0);
}

const text = (slot) => new TextDecoder().decode(bytes(slot));

async function load() {
  await instance();
  ovir.ovir_cards();
  return { cards: JSON.parse(text(SLOT.json)), canRun: "ovir_run" in ovir };
}

async function validate({ xml, weights, checksValues }) {
  await instance();
  ovir.ovir_clear();
  fill(SLOT.name, new TextEncoder().encode(xml.name));
  await fillFrom(SLOT.xml, xml);
  if (weights) await fillFrom(SLOT.weights, weights);
  const start = performance.now();
  ovir.ovir_validate(Boolean(weights), checksValues);
  const milliseconds = performance.now() - start;
  return { json: text(SLOT.json), human: text(SLOT.human), facts: JSON.parse(text(SLOT.facts)), milliseconds };
}

async function run({ xml, weights, inputs, seed }) {
  // Another model may have been checked since.
  await validate({ xml, weights, checksValues: false });
  for (const input of inputs) {
    fill(SLOT.name, new TextEncoder().encode(input.name.replace(/\.npy$/i, "")));
    await fillFrom(SLOT.input, input);
    if (!ovir.ovir_set_input()) throw new Error(`${input.name}: ${JSON.parse(text(SLOT.json)).error}`);
  }
  const start = performance.now();
  const isDone = ovir.ovir_run(seed);
  const milliseconds = performance.now() - start;
  const summary = JSON.parse(text(SLOT.json));
  const outputs = (summary.outputs ?? []).map((_, index) => ovir.ovir_output(index) && bytes(SLOT.output).slice());
  return { isDone, summary, outputs, milliseconds };
}

const actions = { load, validate, run };

onmessage = async ({ data: { number, action, request } }) => {
  try {
    postMessage({ number, result: await actions[action](request ?? {}) });
  } catch (error) {
    // After a trap the memory of the instance may be in any state.
    ovir = null;
    const isTrap = error instanceof WebAssembly.RuntimeError;
    postMessage({ number, error: isTrap ? `internal defect of ovir (${error.message})` : String(error.message ?? error) });
  }
};
