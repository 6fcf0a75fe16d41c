// Maps of many points on a canvas: colour by any column, search, zoom, and a text for the point that is touched.
// Mouse: move, drag, wheel after a click. Keyboard: arrows go from point to point, + and - zoom, 0 shows everything.
// Touch: a tap chooses, two fingers zoom; one finger scrolls the page until the map is zoomed in.
// Search: words of texts, ids and columns; `genre:fiction` or `genre:"new york"` means that value and no other.

const maps = [];
const STEPS = 9999;
const PAD = 14;
const NEAR = 14; // pixels between a pointer and the point that it means
const CELLS = 64; // of a side of the grid that finds points
const FEWER = 4000; // points up to which they are circles
const ZOOM = 1.5;
const PALETTE = 9;
const KEYS = 40; // of a legend

class PointMap {
  constructor(box) {
    this.box = box;
    this.canvas = box.querySelector("canvas");
    this.tip = box.querySelector(".tip");
    this.said = box.querySelector("output.point");
    this.data = JSON.parse(byId(`${box.id}-data`).textContent);
    this.column = 0;
    this.hidden = new Set();
    this.view = { scale: 1, x: 0, y: 0 };
    this.chosen = -1;
    this.words = [];
    this.matches = null;
    this.pointers = new Map();
    this.left = this.data.xName ? 46 : PAD;
    this.below = this.data.xName ? 40 : PAD;
    this.fill();
    this.listen();
    this.resize();
  }

  // Where things are

  fill() {
    const { x, y } = this.data;
    this.grid = Array.from({ length: CELLS * CELLS }, () => []);
    for (let i = 0; i < x.length; i++) this.grid[this.cell(y[i]) * CELLS + this.cell(x[i])].push(i);
  }

  cell(step) {
    return Math.min(CELLS - 1, Math.max(0, Math.floor((step / (STEPS + 1)) * CELLS)));
  }

  place(i) {
    const { scale, x, y } = this.view;
    return [this.left + (this.data.x[i] / STEPS) * this.wide * scale + x, PAD + (1 - this.data.y[i] / STEPS) * this.high * scale + y];
  }

  steps(px, py) {
    const { scale, x, y } = this.view;
    return [((px - this.left - x) / (this.wide * scale)) * STEPS, (1 - (py - PAD - y) / (this.high * scale)) * STEPS];
  }

  seen(i) {
    const column = this.data.columns[this.column];
    return !column || !column.codes || !this.hidden.has(column.codes[i]);
  }

  nearest(px, py, reach) {
    const [sx, sy] = this.steps(px, py), { scale } = this.view;
    const [dx, dy] = [(reach / (this.wide * scale)) * STEPS, (reach / (this.high * scale)) * STEPS];
    let best = -1, least = reach * reach;
    for (let row = this.cell(sy - dy); row <= this.cell(sy + dy); row++) {
      for (let at = this.cell(sx - dx); at <= this.cell(sx + dx); at++) {
        for (const i of this.grid[row * CELLS + at]) {
          if (!this.seen(i) || (this.matches && !this.matches[i])) continue;
          const [x, y] = this.place(i), gap = (x - px) ** 2 + (y - py) ** 2;
          if (gap < least) [best, least] = [i, gap];
        }
      }
    }
    return best;
  }

  // Colours

  tint(code, names) {
    const name = names[code];
    if (name === "wrong") return colour("--bad");
    if (name === "correct") return colour("--c0");
    if (name === "other" || name === "none") return colour("--c9");
    if (code < PALETTE) return colour(`--c${code}`);
    return `hsl(${(code * 137.5) % 360} 55% ${root.dataset.theme === "dark" ? 68 : 40}%)`;
  }

  shade(share) {
    return share === null ? colour("--line") : between(colour("--bad"), colour("--c0"), share / 100);
  }

  groups() {
    const state = JSON.stringify([this.column, [...this.hidden], root.dataset.theme]);
    if (this.state !== state) [this.state, this.sorted] = [state, this.sort()];
    return this.sorted;
  }

  // Points by colour; kept until column, legend or theme change.
  sort() {
    const column = this.data.columns[this.column], count = this.data.x.length;
    if (!column) return new Map([[colour("--c0"), Array.from({ length: count }, (_, i) => i)]]);
    const tints = column.codes ? column.names.map((_, code) => this.tint(code, column.names)) : Array.from({ length: 102 }, (_, i) => this.shade(i > 100 ? null : i));
    const sorted = new Map();
    for (let i = 0; i < count; i++) {
      if (!this.seen(i)) continue;
      const tint = tints[column.codes ? column.codes[i] : column.shares[i] === null ? 101 : column.shares[i]];
      if (!sorted.has(tint)) sorted.set(tint, []);
      sorted.get(tint).push(i);
    }
    return sorted;
  }

  // Drawing

  resize() {
    const ratio = Math.min(2, devicePixelRatio || 1), { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth) return;
    this.canvas.width = clientWidth * ratio;
    this.canvas.height = clientHeight * ratio;
    this.ratio = ratio;
    this.wide = clientWidth - this.left - PAD;
    this.high = clientHeight - PAD - this.below;
    this.paint();
  }

  paint() {
    if (this.waiting || !this.wide) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.box.dataset.drawn = "";
      this.draw();
    });
  }

  draw() {
    const pen = this.canvas.getContext("2d"), { clientWidth, clientHeight } = this.canvas;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, clientWidth, clientHeight);
    const few = this.data.x.length <= FEWER, size = (few ? 3 : 1.6) * Math.min(2, Math.sqrt(this.view.scale));
    if (!few) this.raster(pen, size);
    if (this.data.xName) this.axes(pen);
    pen.save();
    pen.beginPath();
    pen.rect(this.left - 6, PAD - 6, this.wide + 12, this.high + 12);
    pen.clip();
    if (few) this.circles(pen, size);
    if (!this.matches) this.names(pen);
    if (this.chosen >= 0) this.ring(pen);
    pen.restore();
  }

  circles(pen, size) {
    for (const pass of this.matches ? [false, true] : [null]) {
      pen.globalAlpha = pass === false ? 0.08 : pass ? 0.95 : 0.75;
      for (const [tint, points] of this.groups()) {
        pen.fillStyle = pass === false ? colour("--soft") : tint;
        for (const i of points) {
          if (pass !== null && Boolean(this.matches[i]) !== pass) continue;
          const [x, y] = this.place(i);
          pen.beginPath();
          pen.arc(x, y, pass ? size * 1.4 : size, 0, 7);
          pen.fill();
        }
      }
    }
    pen.globalAlpha = 1;
  }

  // Thousands of points are written as pixels, which is many times faster than as shapes.
  raster(pen, size) {
    const { width, height } = this.canvas;
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = pen.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(0);
    for (const pass of this.matches ? [false, true] : [null]) {
      for (const [tint, points] of this.groups()) {
        pen.fillStyle = pass === false ? colour("--soft") : tint; // read back as #rrggbb
        const shown = pass === null ? points : points.filter((i) => Boolean(this.matches[i]) === pass);
        this.squares(shown, rgb(pen.fillStyle), pass === false ? 0.12 : pass ? 1 : 0.7, pass ? size * 1.4 : size);
      }
    }
    pen.putImageData(this.image, 0, 0);
  }

  squares(points, [r, g, b], alpha, size) {
    const { width } = this.image, { pixels, ratio, data } = this, { scale, x, y } = this.view;
    const side = Math.max(2, Math.round(2 * size * ratio)), half = side >> 1;
    const [left, right] = [(this.left - 6) * ratio, (this.left + this.wide + 6) * ratio - side];
    const [top, bottom] = [(PAD - 6) * ratio, (PAD + this.high + 6) * ratio - side];
    const [wide, high] = [(this.wide * scale) / STEPS, (this.high * scale) / STEPS];
    for (const i of points) {
      const px = Math.round((this.left + data.x[i] * wide + x) * ratio) - half;
      const py = Math.round((PAD + (STEPS - data.y[i]) * high + y) * ratio) - half;
      if (px < left || py < top || px > right || py > bottom) continue;
      for (let row = py; row < py + side; row++) {
        for (let at = row * width + px; at < row * width + px + side; at++) {
          const under = pixels[at], seen = (under >>> 24) / 255, whole = alpha + seen * (1 - alpha);
          const mix = (own, shift) => (own * alpha + ((under >>> shift) & 255) * seen * (1 - alpha)) / whole;
          pixels[at] = ((whole * 255) << 24) | (mix(b, 16) << 16) | (mix(g, 8) << 8) | mix(r, 0);
        }
      }
    }
  }

  ring(pen) {
    const [x, y] = this.place(this.chosen);
    pen.beginPath();
    pen.arc(x, y, 8, 0, 7);
    pen.lineWidth = 2.5;
    pen.strokeStyle = colour("--ink");
    pen.stroke();
  }

  // Words at their places: the first ones win, others appear when there is room for them.
  names(pen) {
    pen.font = "600 12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.lineJoin = "round";
    pen.lineWidth = 4;
    const taken = [], { scale, x, y } = this.view;
    for (const [sx, sy, text] of this.data.names) {
      const half = pen.measureText(text).width / 2 + 3;
      const [least, most] = [this.left + half, this.left + this.wide - half];
      const px = this.left + (sx / STEPS) * this.wide * scale + x, py = PAD + (1 - sy / STEPS) * this.high * scale + y;
      const at = scale > 1 ? px : Math.min(Math.max(px, least), Math.max(least, most));
      if (taken.some(([a, b, wide]) => Math.abs(a - at) < wide + half && Math.abs(b - py) < 17)) continue;
      taken.push([at, py, half]);
      pen.strokeStyle = colour("--paper");
      pen.strokeText(text, at, py + 4);
      pen.fillStyle = colour("--ink");
      pen.fillText(text, at, py + 4);
    }
  }

  axes(pen) {
    pen.font = "12px system-ui, sans-serif";
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--soft");
    const number = ([low, high], share) => String(Number((low + (high - low) * share).toPrecision(3)));
    const bottom = PAD + this.high;
    for (let k = 0; k <= 4; k++) {
      const x = this.left + (this.wide * k) / 4, y = bottom - (this.high * k) / 4;
      pen.beginPath();
      pen.moveTo(this.left, y);
      pen.lineTo(this.left + this.wide, y);
      pen.moveTo(x, PAD);
      pen.lineTo(x, bottom);
      pen.stroke();
      const [sx] = this.steps(x, y), [, sy] = this.steps(x, y);
      pen.textAlign = k === 4 ? "right" : "center";
      pen.fillText(number(this.data.xRange, sx / STEPS), x, bottom + 15);
      pen.textAlign = "right";
      pen.fillText(number(this.data.yRange, sy / STEPS), this.left - 6, y + 4);
    }
    pen.fillStyle = colour("--ink");
    pen.textAlign = "center";
    pen.fillText(this.data.xName, this.left + this.wide / 2, bottom + 32);
    pen.save();
    pen.translate(12, PAD + this.high / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(this.data.yName, 0, 0);
    pen.restore();
  }

  // What is told of a point

  lines(i) {
    const told = this.data.columns.map((column) => {
      if (column.codes) return `${column.name} ${column.names[column.codes[i]]}`;
      return column.shares[i] === null ? "" : `${column.name} ${Number((column.low + ((column.high - column.low) * column.shares[i]) / 100).toPrecision(2))}`;
    });
    return [this.data.texts[i] ?? "", [this.data.ids[i], ...told.filter(Boolean)].join(" · ")].filter(Boolean);
  }

  choose(i, speak) {
    if (i === this.chosen && !speak) return;
    this.chosen = i;
    this.pinned = Boolean(speak) && i >= 0; // by a key or a tap: a mouse that finds nothing leaves it
    this.tip.hidden = i < 0;
    if (i >= 0) {
      const [x, y] = this.place(i), lines = this.lines(i);
      this.tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("p"), { textContent: line })));
      const wide = this.canvas.clientWidth, half = Math.min(wide, 340) / 2;
      this.tip.style.left = `${Math.min(Math.max(x, half), wide - half)}px`;
      this.tip.style.top = `${this.canvas.offsetTop + y + (y > this.canvas.clientHeight / 2 ? -14 : 14)}px`;
      this.tip.classList.toggle("above", y > this.canvas.clientHeight / 2);
      if (speak) this.said.textContent = lines.join(" — ");
    }
    this.paint();
  }

  // What people do

  zoom(factor, px = this.left + this.wide / 2, py = PAD + this.high / 2) {
    const { scale, x, y } = this.view, next = Math.min(60, Math.max(1, scale * factor)), share = next / scale;
    this.view = { scale: next, x: px - this.left - (px - this.left - x) * share, y: py - PAD - (py - PAD - y) * share };
    this.moved();
  }

  moved() {
    const { view } = this;
    view.x = Math.min(0, Math.max(view.x, this.wide * (1 - view.scale)));
    view.y = Math.min(0, Math.max(view.y, this.high * (1 - view.scale)));
    this.canvas.style.touchAction = view.scale > 1 ? "none" : "pan-y";
    this.tip.hidden = true;
    this.paint();
  }

  everything() {
    this.view = { scale: 1, x: 0, y: 0 };
    this.choose(-1);
    this.moved();
  }

  step(dx, dy) {
    if (this.chosen < 0) return this.choose(this.nearest(this.left + this.wide / 2, PAD + this.high / 2, this.wide), true);
    const [x, y] = this.place(this.chosen);
    let best = -1, least = Infinity;
    for (let i = 0; i < this.data.x.length; i++) {
      if (i === this.chosen || !this.seen(i) || (this.matches && !this.matches[i])) continue;
      const [px, py] = this.place(i), ahead = (px - x) * dx + (py - y) * dy, aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
      if (ahead > 0.5 && ahead + 3 * aside < least) [best, least] = [i, ahead + 3 * aside];
    }
    if (best >= 0) this.choose(best, true);
  }

  key(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (ways[event.key]) this.step(...ways[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(ZOOM, ...(this.chosen >= 0 ? this.place(this.chosen) : []));
    else if (event.key === "-") this.zoom(1 / ZOOM);
    else if (event.key === "0" || event.key === "Escape") this.everything();
    else return;
    event.preventDefault();
  }

  search(text) {
    const words = (text.toLowerCase().match(/(?:[^\s"]|"[^"]*")+/g) ?? []).map((word) => this.wanted(word));
    const told = this.box.querySelector("output.matches");
    this.matches = words.length ? this.data.ids.map((_, i) => words.every((fits) => fits(i))) : null;
    const count = this.matches ? this.matches.filter(Boolean).length : 0;
    told.textContent = this.matches ? `${count} of ${this.data.ids.length}` : "";
    this.choose(-1);
    this.paint();
  }

  // Whether a point fits a word of a search.
  wanted(word) {
    const [name, value] = [word.split(":", 1)[0], word.slice(word.indexOf(":") + 1).replaceAll('"', "")];
    const column = this.data.columns.find((one) => one.codes && word.includes(":") && one.name.toLowerCase() === name);
    if (column) {
      const code = column.names.findIndex((one) => one.toLowerCase() === value);
      return (i) => column.codes[i] === code;
    }
    this.whole ??= this.data.ids.map((_, i) => this.lines(i).join(" ").toLowerCase());
    const plain = word.replaceAll('"', "");
    return (i) => this.whole[i].includes(plain);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    this.pointers.set(event.pointerId, this.at(event));
    this.travelled = 0;
    if (event.pointerType === "mouse") this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const now = this.at(event), before = this.pointers.get(event.pointerId);
    if (!before) return event.pointerType === "mouse" ? this.hover(event, now) : undefined;
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    this.pointers.set(event.pointerId, now);
    const far = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
    this.travelled += far(now, before);
    if (others.length) {
      const middle = [(now[0] + others[0][0]) / 2, (now[1] + others[0][1]) / 2];
      this.zoom(far(now, others[0]) / Math.max(1, far(before, others[0])), ...middle);
    } else if (this.view.scale > 1) {
      this.view.x += now[0] - before[0];
      this.view.y += now[1] - before[1];
      this.moved();
    }
  }

  hover(event, now) {
    if (!event.movementX && !event.movementY) return; // the page moved under a mouse at rest
    const near = this.nearest(...now, NEAR);
    if (near >= 0 || !this.pinned) this.choose(near);
  }

  up(event) {
    const known = this.pointers.delete(event.pointerId);
    if (known && event.type === "pointerup" && this.travelled < 6) this.choose(this.nearest(...this.at(event), NEAR * 1.5), true);
  }

  wheel(event) {
    if (document.activeElement !== this.canvas && !event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, ...this.at(event));
  }

  // Controls

  listen() {
    const { canvas, box } = this, on = (name, way, more) => canvas.addEventListener(name, way.bind(this), more);
    on("pointerdown", this.down);
    on("pointermove", this.move);
    for (const name of ["pointerup", "pointercancel"]) on(name, this.up);
    on("pointerleave", (event) => event.pointerType === "mouse" && !this.pointers.size && !this.pinned && this.choose(-1));
    on("wheel", this.wheel, { passive: false });
    on("keydown", this.key);
    canvas.style.touchAction = "pan-y";
    new ResizeObserver(() => this.resize()).observe(canvas);
    for (const button of all("button[data-zoom]", box)) {
      button.addEventListener("click", () => (button.dataset.zoom === "all" ? this.everything() : this.zoom(button.dataset.zoom === "in" ? ZOOM : 1 / ZOOM)));
    }
    box.querySelector("input[type=search]").addEventListener("input", (event) => this.search(event.target.value));
    const chooser = box.querySelector("select");
    if (chooser) chooser.addEventListener("change", () => this.recolour(Number(chooser.value)));
    this.legend();
  }

  recolour(column) {
    this.column = column;
    this.hidden.clear();
    this.legend();
    this.paint();
  }

  legend() {
    const place = this.box.querySelector(".legend"), column = this.data.columns[this.column];
    place.replaceChildren();
    if (!column) return;
    if (!column.codes) {
      const scale = document.createElement("span");
      scale.className = "scale";
      place.append(String(column.low), scale, String(column.high));
      return;
    }
    column.names.slice(0, KEYS).forEach((name, code) => {
      const key = Object.assign(document.createElement("button"), { type: "button", textContent: name });
      key.style.setProperty("--key", this.tint(code, column.names));
      key.setAttribute("aria-pressed", "true");
      key.addEventListener("click", () => {
        if (!this.hidden.delete(code)) this.hidden.add(code);
        key.setAttribute("aria-pressed", String(!this.hidden.has(code)));
        this.choose(-1);
        this.paint();
      });
      place.append(key);
    });
    if (column.names.length > KEYS) place.append(`and ${column.names.length - KEYS} more`);
  }
}

function showMap(box) {
  if (!maps.some((one) => one.box === box)) maps.push(new PointMap(box));
}

// A button elsewhere that shows some points of a map.
function findOnMap(button) {
  const box = byId(button.dataset.map), field = box.querySelector("input[type=search]");
  showMap(box);
  field.value = button.dataset.find;
  field.dispatchEvent(new Event("input"));
  box.scrollIntoView({ block: "nearest" });
  box.querySelector("canvas").focus({ preventScroll: true });
}

function repaintMaps() {
  for (const one of maps) {
    one.legend();
    one.paint();
  }
}

const mapSight = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => showMap(entry.target)),
  { rootMargin: "400px" },
);
all(".dots").forEach((box) => mapSight.observe(box));
all("button[data-find]").forEach((button) => button.addEventListener("click", () => findOnMap(button)));
addEventListener("beforeprint", () => all(".dots").filter((box) => box.offsetParent).forEach(showMap));
new MutationObserver(repaintMaps).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
