"use strict";
const at = (id) => document.getElementById(id);
const token = () => at("token").value.trim();

async function ask(path, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  const found = await answer.json();
  if (answer.status === 401) at("token-row").hidden = false;
  if (!answer.ok) throw new Error(found.error || `status ${answer.status}`);
  return found;
}

function row(table, cells) {
  const line = table.insertRow();
  for (const cell of cells) {
    const place = line.insertCell();
    if (cell instanceof Node) { place.append(cell); place.className = "bar"; }
    else { place.textContent = cell; if (/^-?[\d.]+( %)?$/.test(cell)) place.className = "number"; }
  }
}

function bar(value) {
  const found = document.createElement("progress");
  found.max = 1;
  found.value = value;
  return found;
}

let pair = null;
async function describe() {
  const about = await ask("/model");
  at("name").textContent = about.name;
  document.title = `${about.name} · encodery serve`;
  const labels = about.labels.length ? `${about.labels.length} labels` : about.answers;
  at("about").textContent = [about.task, labels, `up to ${about.max_length} tokens`, about.runtime].filter(Boolean).join(" · ");
  pair = about.texts === 2;
  at("second").hidden = about.texts === 1;
  at("text2").required = pair;
  if (about.answers === "span") { at("text-label").textContent = "Question"; at("text2-label").textContent = "Context"; }
  if (about.answers === "ranking") { at("second").hidden = false; at("text2-label").textContent = "Candidates, one per line"; }
  at("text2").dataset.lines = about.answers === "ranking" ? "yes" : "";
  show(about.scores);
}

function show(scores) {
  const body = at("scores").querySelector("tbody");
  body.replaceChildren();
  at("alarms").replaceChildren();
  for (const [name, metrics] of Object.entries(scores.scores || {})) {
    const main = (scores.main || {})[name];
    for (const [metric, value] of Object.entries(metrics)) {
      const simple = ((scores.majority || {})[name] || {})[metric];
      const number = (x) => (typeof x === "number" ? x.toFixed(4) : "–");
      row(body, [name, metric === main ? `${metric} (main)` : metric, number(value), number(simple)]);
    }
  }
  for (const alarm of scores.alarms || []) {
    const line = document.createElement("li");
    line.textContent = alarm;
    at("alarms").append(line);
  }
  at("scores").hidden = !body.rows.length;
}

function answer(found) {
  const said = found.prediction;
  at("prediction").textContent = Array.isArray(said) ? said.join(" ") || "(none)"
    : typeof said === "number" ? said.toFixed(4) : said || "(no answer)";
  const chances = Object.entries(found.probabilities || {}).sort((a, b) => b[1] - a[1]);
  const body = at("probabilities").tBodies[0];
  body.replaceChildren();
  for (const [label, chance] of chances) row(body, [label, chance.toFixed(4), bar(chance)]);
  at("probabilities").hidden = !chances.length;
  at("answer").hidden = false;
}

at("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = at("form").querySelector("button");
  button.disabled = true;
  at("status").textContent = "…";
  try {
    if (pair === null) await describe();
    const second = at("text2").value;
    const request = { text: at("text").value };
    if (at("text2").dataset.lines) request.candidates = second.split("\n").filter((line) => line.trim());
    else if (!at("second").hidden && second) request.text2 = second;
    answer((await ask("/predict", request)).predictions[0]);
    at("status").textContent = "";
  } catch (error) {
    at("status").textContent = error.message;
  }
  button.disabled = false;
});
at("token").addEventListener("change", () => describe().then(() => { at("status").textContent = ""; }, (error) => { at("status").textContent = error.message; }));
describe().catch((error) => { at("status").textContent = error.message; });
