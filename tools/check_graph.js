// Opens pages of `ovir graph` in headless Chromium: time to open and to search, dialogs, errors, screenshots.
//
//     npm install playwright-core
//     node tools/check_graph.js PAGE.html=WORD...
//
// Chromium is /usr/bin/chromium unless CHROMIUM says otherwise. Each page leaves PAGE.html.1.png as opened and
// PAGE.html.2.png with the first layer found. Fails if a page takes a second, raises an error or opens a dialog.
"use strict";
const path = require("path");
const { chromium } = require("playwright-core");

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"];
const LIMIT = 1000;

async function check(browser, file, word) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  const faults = [];
  page.on("dialog", dialog => { faults.push("dialog"); dialog.dismiss(); });
  page.on("pageerror", error => faults.push(error.message));
  page.on("request", request => { if (!request.url().startsWith("file:")) faults.push("loads " + request.url()); });
  await page.goto("file://" + path.resolve(file));
  await page.waitForFunction("window.ovirGraph");
  const opened = await page.evaluate(() => window.ovirGraph.opened);
  const layers = await page.evaluate(() => window.ovirGraph.model.graphs.map(graph => graph.layers.length));
  await page.screenshot({ path: file + ".1.png" });
  const searched = await page.evaluate(text => window.ovirGraph.find(text), word);
  await page.fill("#search", word);
  await page.press("#search", "Enter");
  await page.waitForTimeout(100);
  await page.screenshot({ path: file + ".2.png" });
  await page.close();
  console.log(`${file}: ${layers[0]} layers, ${layers.length - 1} bodies, opened in ${opened.toFixed(0)} ms, ` +
    `searched in ${searched.toFixed(1)} ms ${faults.join(", ")}`);
  return faults.length === 0 && opened < LIMIT && searched < LIMIT;
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: FLAGS });
  let isGood = true;
  for (const argument of process.argv.slice(2)) {
    const [file, word = "add"] = argument.split("=");
    isGood = await check(browser, file, word) && isGood;
  }
  await browser.close();
  process.exit(isGood ? 0 : 1);
}

main();
