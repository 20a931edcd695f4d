// Tries the page of `tools/build_wasm.py` in headless Chromium: models are checked and run, nothing is sent, hostile
// names stay text.
//
//     npm install playwright-core
//     node tools/check_page.js target/page [FILE...]
//
// FILE... are chosen together (.xml, .bin, .npy); without them a damaged model of the script's own is. Chromium is
// /usr/bin/chromium unless CHROMIUM says otherwise. Screenshots go to page-1.png (findings), page-2.png (a card or what a
// run gave) of the folder. Fails on errors of the page, dialogs, foreign requests.
"use strict";
const fs = require("fs");
const http = require("http");
const path = require("path");
const { chromium } = require("playwright-core");

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run"];
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };

/** A model with a defect, and names that a careless page would run. */
const HOSTILE = `<net name="&lt;img src=x onerror=alert(1)&gt;" version="11">
    <layers>
        <layer id="0" name="&lt;script&gt;alert(2)&lt;/script&gt;" type="Parameter" version="opset1">
            <data shape="2,3" element_type="f33"/>
            <output><port id="0" precision="FP32"><dim>2</dim><dim>3</dim></port></output>
        </layer>
        <layer id="1" name="r" type="Result" version="opset1">
            <input><port id="0"><dim>2</dim><dim>3</dim></port></input>
        </layer>
    </layers>
    <edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges>
</net>`;

function serve(folder) {
  const server = http.createServer((request, response) => {
    const name = request.url === "/" ? "index.html" : path.basename(request.url);
    const file = path.join(folder, name);
    if (!fs.existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[path.extname(file)] ?? "application/octet-stream" });
    fs.createReadStream(file).pipe(response);
  });
  return new Promise(resolve => server.listen(0, "127.0.0.1", () => resolve(server)));
}

async function main() {
  const [folder, ...files] = process.argv.slice(2);
  const server = await serve(folder);
  const origin = `http://127.0.0.1:${server.address().port}/`;
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: FLAGS });
  const page = await browser.newPage({ viewport: { width: 1200, height: 1000 } });
  const faults = [];
  page.on("dialog", dialog => { faults.push("dialog"); dialog.dismiss(); });
  page.on("pageerror", error => faults.push(error.message));
  page.on("console", message => { if (message.type() === "error") faults.push(message.text()); });
  page.on("request", request => {
    const isOwn = request.url().startsWith(origin) || request.url().startsWith("blob:" + origin);
    // Browsers ask for it unasked.
    if (!isOwn) faults.push("asks for " + request.url());
  });
  await page.route("**/favicon.ico", route => route.fulfill({ status: 204 }));
  await page.goto(origin);
  await page.waitForSelector("body[data-ready]").catch(error => {
    throw new Error(`${error.message}; ${faults.join("; ")}`);
  });
  const own = { name: "hostile <b>.xml", mimeType: "text/xml", buffer: Buffer.from(HOSTILE) };
  await page.setInputFiles("#files", files.length ? files : [own]);
  await page.waitForSelector("body[data-done]", { timeout: 600000 });
  await page.screenshot({ path: path.join(folder, "page-1.png") });
  for (const header of await page.locator(".model > header").all()) console.log(await header.innerText());
  if ((await page.locator(".model img, .model script, .model b").count()) > 0) faults.push("markup of a file became markup");
  const run = page.getByRole("button", { name: /^Run on/ }).first();
  const code = page.locator("button.code").first();
  if (await run.count()) {
    await run.click();
    await page.waitForFunction(() => !document.querySelector(".model").textContent.includes("Running"), null, { timeout: 600000 });
    console.log(await page.locator(".actions + div").first().innerText());
  } else if (await code.count()) {
    await code.click();
    console.log(await page.locator("#card h2").innerText());
  }
  await page.screenshot({ path: path.join(folder, "page-2.png"), fullPage: true });
  await browser.close();
  server.close();
  console.log(faults.length ? "FAULTS: " + faults.join("; ") : "no faults");
  process.exit(faults.length ? 1 : 0);
}

main();
