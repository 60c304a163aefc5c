// Grants and usage of one device over time, as stacked bars on a canvas: one column for each second, the newest at the
// right, and once more as a broad bar of now. A new second moves the picture and draws one column, so that it costs the same
// after ten minutes as at the beginning.

const WINDOW = 600; // seconds
const COLOURS = 12;
const HOLD = 5; // seconds that a sample may stand for; where nobody answered for longer, there is a gap

// Colours are the style sheet's: a probe element tells what they are in the theme of now.
export function readColours() {
  const probe = document.createElement("i");
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const colours = {
    bands: Array.from({ length: COLOURS }, (_, index) => read(`--band-${index}`)),
    others: read("--band-others"),
    settling: read("--settling"),
  };
  probe.remove();
  return colours;
}

export class Chart {
  constructor(canvas, now, uuid) {
    this.canvas = canvas;
    this.now = now;
    this.uuid = uuid;
    this.context = canvas.getContext("2d");
    this.samples = [];
    this.colours = null;
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // Samples are in the order of time; `first` begins a new picture.
  add(samples, first) {
    const mine = samples.map(({ t, devices }) => ({ t, device: devices[this.uuid] }));
    if (first || !this.samples.length) {
      this.samples = mine.slice(-WINDOW);
      this.redraw();
      return;
    }
    for (const sample of mine) {
      const steps = sample.t - this.samples.at(-1).t;
      if (steps <= 0) continue;
      this.samples.push(sample);
      this.move(steps);
      this.column(sample, this.canvas.width, steps);
    }
    this.drawNow();
    const begin = this.samples.findIndex(({ t }) => t > this.samples.at(-1).t - WINDOW);
    if (begin > 60) this.samples.splice(0, begin); // seldom, because it moves them all
  }

  recolour(colours) {
    this.colours = colours;
    this.redraw();
  }

  redraw() {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    // Whole pixels for each second; the style sheet fits the picture to its place.
    this.step = Math.max(1, Math.round((canvas.clientWidth * ratio) / WINDOW));
    canvas.width = this.step * WINDOW;
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    const newest = this.samples.at(-1)?.t;
    let before = -Infinity;
    for (const sample of this.samples) {
      this.column(sample, canvas.width - this.step * (newest - sample.t), sample.t - before);
      before = sample.t;
    }
    this.drawNow();
  }

  drawNow() {
    const { now } = this;
    now.width = 32;
    now.height = this.canvas.height;
    if (this.samples.length) this.bar(now.getContext("2d"), this.samples.at(-1), 0, now.width);
  }

  move(steps) {
    const { canvas, context } = this;
    const distance = steps * this.step;
    context.globalCompositeOperation = "copy";
    context.drawImage(canvas, -distance, 0);
    context.globalCompositeOperation = "source-over";
    context.clearRect(canvas.width - distance, 0, distance, canvas.height);
  }

  // A sample stands for the seconds since the one before it.
  column(sample, right, steps) {
    const width = this.step * (steps <= HOLD ? steps : 1);
    if (right > 0) this.bar(this.context, sample, right - width, width);
  }

  bar(context, { device }, left, width) {
    if (!device || !this.colours) return;
    const { height } = this.canvas;
    const scale = height / Math.max(device.capacity, 1);
    let bottom = height;
    const band = (size, colour, opacity) => {
      if (size <= 0) return;
      const top = Math.max(0, bottom - size * scale);
      context.globalAlpha = opacity;
      context.fillStyle = colour;
      context.fillRect(left, top, width, bottom - top);
      bottom = top;
    };
    for (const [number, grant, usage] of device.bands) {
      const colour = number < 0 ? this.colours.others : this.colours.bands[number % COLOURS];
      band(usage, colour, 1);
      band(grant - usage, colour, 0.38);
      // A hair of background keeps neighbours apart.
      if (grant * scale > 3) context.clearRect(left, bottom, width, 1);
    }
    band(device.settling, this.colours.settling, 0.6);
    context.globalAlpha = 1;
  }
}

export const seconds = WINDOW;
