"use strict";
const at = (id) => document.getElementById(id);
const made = (kind, text, name) => {
  const found = document.createElement(kind);
  if (text) found.textContent = text;
  if (name) found.className = name;
  return found;
};

function resolve(schema, all) {
  if (schema && schema.$ref) return resolve(all[schema.$ref.split("/").pop()], all);
  return schema || {};
}

function kind(schema, all) {
  const found = resolve(schema, all);
  if (found.anyOf) return found.anyOf.map((one) => kind(one, all)).join(" or ");
  if (found.type === "array") return found.prefixItems ? `[${found.prefixItems.map((one) => kind(one, all)).join(", ")}]` : `list of ${kind(found.items, all)}`;
  return found.type || "anything";
}

function fields(title, schema, all) {
  const found = resolve(schema, all);
  const box = made("div");
  box.append(made("h3", title));
  if (found.description) box.append(made("p", found.description));
  const table = made("table");
  for (const [name, about] of Object.entries(found.properties || {})) {
    const line = table.insertRow();
    line.insertCell().append(made("code", name));
    line.insertCell().textContent = kind(about, all);
    line.insertCell().textContent = about.description || "";
  }
  if (table.rows.length) box.append(table);
  return box;
}

function content(part) {
  return ((part || {}).content || {})["application/json"];
}

function draw(schema) {
  const all = schema.components.schemas;
  at("paths").replaceChildren();
  for (const [path, methods] of Object.entries(schema.paths)) {
    for (const [method, about] of Object.entries(methods)) {
      const title = made("h2");
      title.append(made("code", method.toUpperCase(), "method"), ` ${path}`);
      at("paths").append(title, made("p", about.description));
      const body = content(about.requestBody);
      if (body) at("paths").append(fields("Request", body.schema, all));
      const answer = content(about.responses["200"]);
      if (answer && answer.schema && answer.schema.$ref) at("paths").append(fields("Response", answer.schema, all));
      if (body) {
        const line = `curl -s ${location.origin}${path} -H 'Content-Type: application/json' \\\n  -d '{"text": "a film to remember"}'`;
        at("paths").append(made("pre", line));
      }
    }
  }
}

async function load() {
  const token = at("token").value.trim();
  const answer = await fetch("/openapi.json", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  const found = await answer.json();
  at("form").hidden = answer.status !== 401;
  at("status").textContent = answer.ok ? "" : found.error;
  if (answer.ok) draw(found);
}

at("form").addEventListener("submit", (event) => { event.preventDefault(); load(); });
load();
