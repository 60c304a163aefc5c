// Memory of one device or container over time, as stacked bars on a canvas: a column for each sample, the newest at the
// right, and once more as a broad bar of now. A new sample moves the picture and draws one column, so that it costs the
// same after a day as at the beginning.

export const COLUMNS = 600; // samples in a picture
const COLOURS = 12;
const HOLD = 5; // seconds that a sample may stand for, and two steps at least; after longer silence there is a gap

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
  // `pick` returns of a sample what is drawn: capacity, settling and shares, or nothing.
  constructor(canvas, now, pick) {
    this.canvas = canvas;
    this.now = now;
    this.pick = pick;
    this.context = canvas.getContext("2d");
    this.samples = [];
    this.unit = 1; // seconds that a column stands for
    this.colours = null;
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // Begins a new picture. Samples are in the order of time.
  show(samples, unit) {
    this.unit = unit;
    this.samples = samples.slice(-COLUMNS);
    this.redraw();
  }

  add(samples) {
    if (!this.samples.length) {
      this.show(samples, this.unit);
      return;
    }
    for (const sample of samples) {
      const steps = this.column(sample) - this.column(this.samples.at(-1));
      if (steps <= 0) continue;
      this.samples.push(sample);
      this.move(steps);
      this.draw(sample, this.canvas.width, steps);
    }
    this.drawNow();
    const begin = this.samples.findIndex((sample) => this.column(sample) > this.newest() - COLUMNS);
    if (begin > 60) this.samples.splice(0, begin); // seldom, because it moves them all
  }

  recolour(colours) {
    this.colours = colours;
    this.redraw();
  }

  column(sample) {
    return Math.floor(sample.time / this.unit);
  }

  newest() {
    return this.column(this.samples.at(-1));
  }

  // The sample that is shown `back` columns left of the newest; none where there is a gap.
  at(back) {
    const wanted = this.newest() - back;
    const index = this.samples.findLastIndex((sample) => this.column(sample) <= wanted);
    const found = this.samples[index];
    if (found && this.column(found) === wanted) return found;
    const next = this.samples[index + 1];
    return next && index >= 0 && this.column(next) - this.column(found) <= this.hold() ? next : undefined;
  }

  hold() {
    return Math.max(2, Math.floor(HOLD / this.unit));
  }

  redraw() {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    // Whole pixels for each column; the style sheet fits the picture to its place.
    this.step = Math.max(1, Math.round((canvas.clientWidth * ratio) / COLUMNS));
    canvas.width = this.step * COLUMNS;
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    let before = -Infinity;
    for (const sample of this.samples) {
      const column = this.column(sample);
      this.draw(sample, canvas.width - this.step * (this.newest() - column), column - before);
      before = column;
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

  // A sample stands for the columns since the one before it.
  draw(sample, right, steps) {
    const width = this.step * (steps <= this.hold() ? steps : 1);
    if (right > 0) this.bar(this.context, sample, right - width, width);
  }

  bar(context, sample, left, width) {
    const device = this.pick(sample);
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
    for (const [number, grant, usage] of device.shares) {
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
