"use strict";
// The page's script: draws charts when they come into sight, sorts and searches tables, switches panels and colours.
// Texts reach the page through textContent or through plotly with entities in place of < and &; nothing becomes markup.

const root = document.documentElement;
const byId = (id) => document.getElementById(id);
const all = (query, from = document) => [...from.querySelectorAll(query)];
const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const drawn = new Map(); // id of a chart -> its data, smoothing included
const COLOURS = 10;
const LEGEND = 10; // more entries hide the picture; touching a line names it
const WRAP = 60; // letters of a line in a hover box
const ROWS = 300; // of the table of a chart's numbers

// Colours

function setTheme(dark) {
  root.dataset.theme = dark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(dark));
  byId("theme").textContent = dark ? "Light" : "Dark";
  for (const id of drawn.keys()) draw(id);
}

function withAlpha(hex, alpha) {
  return `rgba(${rgb(hex).join(",")},${alpha})`;
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function between(a, b, share) {
  const [one, two] = [rgb(a), rgb(b)];
  return `rgb(${one.map((v, i) => Math.round(v + (two[i] - v) * share)).join(",")})`;
}

function colourOf(one, chart) {
  if (one.shade !== undefined) return between(colour("--line"), colour("--c0"), 0.15 + 0.85 * one.shade);
  return colour(`--c${chart.colours[one.group] % COLOURS}`);
}

// Charts

function smoothed(values, weight) {
  if (!weight) return values;
  let mean = 0, mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

function wrapped(text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1).length + word.length > WRAP && lines.at(-1)) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines.join("<br>");
}

function traces(chart) {
  return chart.series.filter((one) => !chart.hidden[one.group]).flatMap((one) => {
    const tint = colourOf(one, chart);
    const own = {
      x: one.x, y: smoothed(one.y, chart.weight), name: one.name, showlegend: false,
      hovertemplate: (one.text ? "%{text}<br>" : "") + (chart.bare ? "" : "%{x}: %{y}") + "<extra>%{fullData.name}</extra>",
    };
    if (one.text) own.text = one.text.map(wrapped);
    const dress = { bars, points, line }[one.kind];
    return [...band(one, tint), Object.assign(own, dress(one, chart, tint))];
  });
}

// The legend stands beside the picture: it wraps on a phone, and a keyboard reaches it.
function legend(id) {
  const chart = drawn.get(id), box = byId(id).parentElement.querySelector(".legend");
  const shown = chart.series.some((one) => one.shade === undefined) ? chart.groups.length : 0;
  if (shown < 2 || shown > LEGEND || box.childElementCount) return;
  chart.groups.forEach((name, group) => {
    const key = document.createElement("button");
    key.type = "button";
    key.textContent = plainText(name);
    key.style.setProperty("--key", `var(--c${chart.colours[group] % COLOURS})`);
    key.setAttribute("aria-pressed", "true");
    key.addEventListener("click", () => {
      chart.hidden[group] = !chart.hidden[group];
      key.setAttribute("aria-pressed", String(!chart.hidden[group]));
      draw(id);
    });
    box.append(key);
  });
}

function line(one, chart, tint) {
  const few = one.x.length <= 15;
  const width = one.dashed ? 1.5 : chart.series.length > 20 ? 1.2 : 2;
  return {
    type: "scatter", mode: few ? "lines+markers" : "lines", opacity: chart.series.length > 20 ? 0.75 : 1,
    line: { color: one.dashed ? colour("--soft") : tint, width, dash: one.dashed ? "dot" : "solid" }, marker: { size: 6, color: tint },
  };
}

function points(one, chart, tint) {
  return { type: "scatter", mode: "markers", marker: { size: 6, color: tint, opacity: 0.65 } };
}

function bars(one, chart, tint) {
  const own = { type: "bar", textposition: "none", marker: { color: tint } };
  if (!one.low) return own;
  const up = one.high.map((v, i) => v === null ? null : v - one.y[i]), down = one.low.map((v, i) => v === null ? null : one.y[i] - v);
  return { ...own, error_y: { type: "data", array: up, arrayminus: down, thickness: 1, width: 3, color: colour("--soft") } };
}

function band(one, tint) {
  if (one.kind !== "line" || !one.low) return [];
  const known = (values) => values.filter((_, i) => one.low[i] !== null); // fewer than three seeds have no interval
  const edge = { x: known(one.x), type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  return [{ ...edge, y: known(one.low) }, { ...edge, y: known(one.high), fill: "tonexty", fillcolor: withAlpha(tint, 0.16) }];
}

function axis(title, more) {
  return {
    title: { text: title, font: { size: 13 } }, gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false,
    automargin: true, exponentformat: "e", tickfont: { size: 12 }, ...more,
  };
}

function layout(chart) {
  const level = ([y]) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: colour("--bad"), width: 1.5, dash: "dash" } });
  const shapes = chart.rules.map(level);
  if (chart.diagonal) shapes.push({ type: "line", layer: "below", ...corners(chart), line: { color: colour("--soft"), width: 1, dash: "dot" } });
  const named = chart.rules.map(([y, text]) => ({ xref: "paper", x: 1, xanchor: "right", y, yanchor: "bottom", text, showarrow: false, bgcolor: colour("--paper"), font: { color: colour("--bad"), size: 12 } }));
  const words = chart.marks.map(([x, y, text]) => ({ x, y, text, showarrow: false, xanchor: "left", xshift: 5, bgcolor: withAlpha(colour("--paper"), 0.75), font: { size: 11 } }));
  const hidden = chart.bare ? { showticklabels: false, showgrid: false } : {};
  const categories = chart.series.some((one) => typeof one.x[0] === "string");
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, sans-serif", color: colour("--ink"), size: 13 },
    margin: { l: 8, r: 8, t: 30, b: 8 }, hovermode: "closest", barmode: chart.stacked ? "stack" : "group", shapes, annotations: [...named, ...words], showlegend: false, dragmode: "zoom",
    hoverlabel: { align: "left", namelength: 60, bgcolor: colour("--raised"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    xaxis: axis(chart.x, categories ? { type: "category" } : hidden),
    yaxis: axis(chart.y, { ...hidden, ...(chart.logY ? { type: "log" } : {}), ...(chart.range ? { range: chart.range } : {}) }),
  };
}

function corners(chart) {
  const values = chart.series.flatMap((one) => [...one.x, ...one.y]).filter((v) => v !== null);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return { x0: low, y0: low, x1: high, y1: high };
}

function draw(id) {
  const chart = drawn.get(id);
  // The buttons are above the picture (its upper margin) and seen on hover alone.
  const config = { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  return Plotly.react(id, traces(chart), layout(chart), config);
}

function show(place) {
  if (drawn.has(place.id)) return;
  drawn.set(place.id, { ...JSON.parse(byId(`${place.id}-data`).textContent), weight: 0, hidden: {} });
  legend(place.id);
  draw(place.id);
}

// A chart's numbers as a table, made when somebody asks

function plainText(text) {
  return String(text).replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

function numbers(details) {
  if (details.querySelector("table")) return;
  const chart = JSON.parse(byId(`${details.dataset.chart}-data`).textContent);
  const rows = chart.series.flatMap((one) => one.x.map((x, i) => [one.name, x, one.y[i]]));
  const table = document.createElement("table");
  for (const cells of [["", chart.x || "place", chart.y || "value"], ...rows.slice(0, ROWS)]) {
    const row = table.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell === null ? "" : plainText(cell);
  }
  const frame = document.createElement("div");
  frame.className = "frame";
  frame.tabIndex = 0;
  frame.append(table);
  details.append(frame);
}

// Tables

function keyOf(row, column) {
  const cell = row.cells[column];
  const text = (cell.dataset.sort ?? cell.textContent).trim();
  const number = text === "" ? NaN : Number(text.replaceAll(",", "").replace(/ ?%$/, ""));
  return { text, number, blank: text === "" };
}

function compare(a, b) {
  if (a.blank || b.blank) return a.blank - b.blank;
  if (!Number.isNaN(a.number) && !Number.isNaN(b.number)) return a.number - b.number;
  return a.text.localeCompare(b.text, "en", { numeric: true });
}

function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0];
  const falling = head.ariaSort === "ascending" || (head.ariaSort !== "descending" && head.classList.contains("n"));
  for (const other of all("th", table)) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const keyed = [...body.rows].map((row) => [keyOf(row, head.cellIndex), row]);
  const sign = falling ? -1 : 1;
  keyed.sort(([a], [b]) => (a.blank || b.blank ? compare(a, b) : sign * compare(a, b)));
  body.append(...keyed.map(([, row]) => row));
}

function search(field) {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...byId(field.dataset.filter).tBodies[0].rows];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  const left = rows.filter((row) => !row.hidden).length;
  byId(`${field.dataset.filter}-count`).textContent = words.length ? `${left} of ${rows.length}` : "";
}

function choose(select) {
  for (const option of select.options) byId(option.value).hidden = option.value !== select.value;
}

// Begin

const sight = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => show(entry.target)),
  { rootMargin: "400px" },
);
const preferred = matchMedia("(prefers-color-scheme: dark)");
setTheme(preferred.matches);
preferred.addEventListener("change", (event) => setTheme(event.matches));
byId("theme").addEventListener("click", () => setTheme(root.dataset.theme !== "dark"));
all(".chart").forEach((place) => sight.observe(place));
addEventListener("beforeprint", () => all(".chart").filter((place) => place.offsetParent).forEach(show));
all(".sortable th button").forEach((button) => button.addEventListener("click", () => sort(button.closest("th"))));
all("[data-filter]").forEach((field) => field.addEventListener("input", () => search(field)));
all("[data-panels]").forEach((select) => select.addEventListener("change", () => choose(select)));
all("details[data-chart]").forEach((details) => details.addEventListener("toggle", () => numbers(details)));
all("[data-smooth]").forEach((dial) => dial.addEventListener("input", () => {
  const chart = drawn.get(dial.dataset.smooth);
  if (!chart) return;
  chart.weight = Number(dial.value);
  draw(dial.dataset.smooth);
}));
