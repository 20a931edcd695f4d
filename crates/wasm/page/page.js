// The page: files in, findings out. All text of files is set as text, never as markup.

const byId = (id) => document.getElementById(id);
const ANSI = /\u001b\[([0-9;]*)m/;
const COLOURS = { 1: "red", 2: "green", 3: "yellow", 4: "blue", 5: "magenta", 6: "cyan" };

let worker = null;
let cards = {};
let canRun = false;
let numbers = 0;
const waiting = new Map();

/** Asks the worker, which answers in its own time. */
function ask(action, request) {
  numbers += 1;
  const number = numbers;
  return new Promise((resolve, reject) => {
    waiting.set(number, { resolve, reject });
    worker.postMessage({ number, action, request });
  });
}

/** A worker, anew after a model that does not end. */
async function start() {
  worker?.terminate();
  for (const { reject } of waiting.values()) reject(new Error("stopped"));
  waiting.clear();
  worker = new Worker("worker.js");
  worker.onerror = (event) => {
    for (const { reject } of waiting.values()) reject(new Error(event.message ?? "the worker does not start"));
    waiting.clear();
  };
  worker.onmessage = ({ data: { number, result, error } }) => {
    const promise = waiting.get(number);
    waiting.delete(number);
    if (error === undefined) promise?.resolve(result);
    else promise?.reject(new Error(error));
  };
  ({ cards, canRun } = await ask("load"));
}

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** The classes of a style such as `1;91` or `38;5;12`. */
function classesOf(style) {
  const numbers = style.split(";").map(Number);
  const classes = [];
  for (let index = 0; index < numbers.length; index += 1) {
    const number = numbers[index];
    if (number === 1) classes.push("bold");
    else if (number === 38 && numbers[index + 1] === 5) {
      classes.push(COLOURS[numbers[index + 2] % 8]);
      index += 2;
    } else if ((number >= 30 && number <= 37) || (number >= 90 && number <= 97)) classes.push(COLOURS[number % 10]);
  }
  return classes.filter(Boolean);
}

/** Text with ANSI styles as elements; codes such as OV503 open their card. */
function styled(text) {
  const pieces = text.split(ANSI);
  const result = document.createDocumentFragment();
  let classes = [];
  pieces.forEach((piece, index) => {
    if (index % 2 === 1) {
      classes = piece === "" || piece === "0" ? [] : [...new Set([...classes, ...classesOf(piece)])];
      return;
    }
    if (piece === "") return;
    const span = element("span", classes.join(" "));
    for (const part of piece.split(/\b(OV\d{3})\b/)) {
      const isCode = Object.hasOwn(cards, part);
      span.append(isCode ? codeButton(part) : part);
    }
    result.append(span);
  });
  return result;
}

function codeButton(code) {
  const button = element("button", "code", code);
  button.type = "button";
  button.onclick = () => showCard(code);
  return button;
}

function showCard(code) {
  byId("card-title").textContent = `${code}: ${cards[code].title}`;
  byId("card-text").textContent = cards[code].explanation;
  byId("card-example").textContent = cards[code].example;
  byId("card").showModal();
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function verdict({ errors, warnings, notes }) {
  const parts = [];
  if (errors) parts.push(plural(errors, "error"));
  if (warnings) parts.push(plural(warnings, "warning"));
  if (notes) parts.push(plural(notes, "note"));
  const kind = errors ? "error" : warnings ? "warning" : "good";
  return element("span", `verdict ${kind}`, errors || warnings ? parts.join(", ") : ["valid", ...parts].join(", "));
}

function factsList(facts) {
  const list = element("dl", "facts");
  const add = (name, value) => list.append(element("dt", "", name), element("dd", "", value));
  const port = ({ name, element_type: type, shape }) => `${name}  ${type}${shape}`;
  add("inputs", facts.inputs.map(port).join(", ") || "none");
  add("outputs", facts.outputs.map(port).join(", ") || "none");
  const most = facts.operations.slice(0, 12).map(([name, count]) => `${name} ${count}`).join(", ");
  add("layers", `${facts.layers}: ${most}${facts.operations.length > 12 ? ", …" : ""}`);
  return list;
}

function save(name, type, content) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function button(text, action) {
  const made = element("button", "", text);
  made.type = "button";
  made.onclick = action;
  return made;
}

/** The buttons under a model, and where a run shows what it gave. */
function actionsOf(model, result) {
  const section = element("section");
  const buttons = element("div", "actions");
  const stem = model.xml.name.replace(/\.xml$/i, "");
  buttons.append(button("Save findings as JSON", () => save(`${stem}.json`, "application/json", result.json)));
  if (canRun && result.facts && model.weights) {
    const outputs = element("div");
    const names = model.inputs.map(({ name }) => name).join(", ");
    const label = names ? `Run on ${names}` : "Run on random inputs";
    buttons.append(button(label, () => run(model, outputs)));
    section.append(buttons, outputs);
  } else section.append(buttons);
  return section;
}

async function run(model, place) {
  place.replaceChildren("Running… ", button("Stop", () => start()));
  try {
    const result = await ask("run", { ...model, seed: 0 });
    if (!result.isDone) throw new Error(result.summary.error);
    const table = element("table", "", element("tr", "", ...["output", "type", "shape", "first values"].map((t) => element("th", "", t))));
    for (const [index, output] of result.summary.outputs.entries()) {
      const values = output.first_values.join(", ") + (output.elements > output.first_values.length ? ", …" : "");
      const cells = [output.name, output.element_type, `[${output.shape.join(",")}]`, values];
      const keep = button("Save", () => save(`${output.name}.npy`, "application/octet-stream", result.outputs[index]));
      table.append(element("tr", "", ...[...cells, keep].map((cell) => element("td", "", cell))));
    }
    place.replaceChildren(`Ran in ${result.milliseconds.toFixed(1)} ms, compilation included.`, table);
  } catch (error) {
    place.replaceChildren(element("span", "verdict error", error.message));
  }
}

async function check(model) {
  const title = element("header", "", element("h2", "", model.xml.name), "checking… ", button("Stop", () => start()));
  const article = element("article", "model", title);
  byId("results").append(article);
  try {
    const result = await ask("validate", { ...model, checksValues: byId("values").checked });
    const { summary } = JSON.parse(result.json);
    const what = model.weights ? `with ${model.weights.name}` : "without weights";
    const time = element("span", "time", `${what}, ${result.milliseconds.toFixed(1)} ms`);
    title.replaceChildren(element("h2", "", model.xml.name), verdict(summary), time);
    if (result.facts) article.append(element("section", "", factsList(result.facts)));
    const human = result.human.trimEnd();
    if (human) article.append(element("section", "findings", element("pre", "", styled(human))));
    article.append(actionsOf(model, result));
  } catch (error) {
    title.replaceChildren(element("h2", "", model.xml.name), element("span", "verdict error", error.message));
  }
}

/** Each .xml with its .bin, of the same name or the only one, and with all arrays if it is the only model. */
function pair(files) {
  const of = (ending) => files.filter((file) => file.name.toLowerCase().endsWith(ending));
  const [xmls, bins, arrays] = [of(".xml"), of(".bin"), of(".npy")];
  const stem = (file) => file.name.replace(/\.[^.]*$/, "");
  const partner = (xml, others) =>
    others.find((other) => stem(other) === stem(xml)) ?? (xmls.length === 1 && others.length === 1 ? others[0] : null);
  return xmls.map((xml) => ({ xml, weights: partner(xml, bins), inputs: xmls.length === 1 ? arrays : [] }));
}

async function take(files) {
  const models = pair([...files]);
  byId("results").replaceChildren();
  byId("status").textContent = models.length ? "" : "There is no .xml file among these.";
  for (const model of models) await check(model);
  document.body.dataset.done = String(models.length);
}

const drop = byId("drop");
drop.ondragover = (event) => {
  event.preventDefault();
  drop.classList.add("over");
};
drop.ondragleave = () => drop.classList.remove("over");
// Files dropped beside the field would replace the page.
document.ondragover = (event) => event.preventDefault();
document.ondrop = (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  take(event.dataTransfer.files);
};
byId("files").onchange = ({ target }) => {
  take(target.files);
};

try {
  await start();
  byId("status").textContent = "";
  document.body.dataset.ready = "true";
} catch (error) {
  byId("status").textContent = `ovir cannot be loaded: ${error.message}. Serve this folder by HTTP; pages opened as files may not load modules.`;
}
