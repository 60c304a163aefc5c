// A chart in its place: scale, axis, and the values of one moment, under the pointer or by the arrow keys.

import { COLUMNS, Chart } from "./chart.js";
import { element, setHidden, setText } from "./dom.js";
import { bytes, clock } from "./text.js";

const SPANS = { 1: ["-10 min", "-5 min", "now"], 12: ["-2 h", "-1 h", "now"], 144: ["-24 h", "-12 h", "now"] };
const KEYS = { ArrowLeft: 1, ArrowRight: -1, PageUp: 60, PageDown: -60 };
const MOST_NAMES = 8;

export class Plot {
  // `pick`: see Chart. `name` returns the name of a container by its number.
  constructor(pick, name) {
    this.pick = pick;
    this.name = name;
    this.back = null; // columns left of the newest at which values are shown
    this.canvas = element("canvas", { className: "past", tabIndex: 0, role: "slider" });
    const now = element("canvas", { className: "now", ariaHidden: "true" });
    this.top = element("span", { className: "top" });
    this.cursor = element("span", { className: "cursor", hidden: true });
    const plot = element("div", { className: "plot" });
    const past = element("div", { className: "window" });
    past.append(this.canvas, this.cursor);
    plot.append(this.top, past, now);
    this.axis = element("p", { className: "axis", ariaHidden: "true" });
    this.axis.append(...SPANS[1].map((text) => element("span", { textContent: text })));
    this.values = element("p", { className: "values", hidden: true });
    this.parts = [plot, this.axis, this.values];
    this.chart = new Chart(this.canvas, now, pick);
    this.canvas.setAttribute("aria-valuemin", String(1 - COLUMNS));
    this.canvas.setAttribute("aria-valuemax", "0");
    this.listen();
    this.showValues();
  }

  listen() {
    this.canvas.addEventListener("pointermove", ({ offsetX }) => {
      this.moveTo(Math.round((1 - offsetX / Math.max(this.canvas.clientWidth, 1)) * (COLUMNS - 1)));
    });
    for (const kind of ["pointerleave", "blur"]) this.canvas.addEventListener(kind, () => this.moveTo(null));
    this.canvas.addEventListener("keydown", (event) => {
      const step = KEYS[event.key];
      const back = { Home: COLUMNS - 1, End: 0, Escape: null }[event.key];
      if (step === undefined && back === undefined) return;
      event.preventDefault();
      this.moveTo(step === undefined ? back : (this.back ?? 0) + (this.back === null ? 0 : step));
    });
  }

  label(text) {
    if (this.canvas.ariaLabel !== text) this.canvas.ariaLabel = text;
  }

  scale(size) {
    setText(this.top, bytes(size));
  }

  show(samples, unit) {
    this.chart.show(samples, unit);
    SPANS[unit].forEach((text, index) => setText(this.axis.children[index], text));
    this.showValues();
  }

  add(samples) {
    this.chart.add(samples);
    this.showValues();
  }

  moveTo(back) {
    this.back = back === null ? null : Math.min(COLUMNS - 1, Math.max(0, back));
    this.showValues();
  }

  showValues() {
    const shown = this.back !== null && this.chart.samples.length > 0;
    setHidden(this.cursor, !shown);
    setHidden(this.values, !shown);
    this.canvas.setAttribute("aria-valuenow", String(-(this.back ?? 0)));
    const sample = this.chart.samples.length ? this.chart.at(this.back ?? 0) : undefined;
    const text = sample ? this.describe(sample) : "no sample";
    this.canvas.setAttribute("aria-valuetext", text);
    if (!shown) return;
    this.cursor.style.left = `${(100 * (COLUMNS - 1 - this.back)) / (COLUMNS - 1)}%`;
    setText(this.values, text);
  }

  describe(sample) {
    const device = this.pick(sample);
    if (!device) return `${clock(sample.time)} · no sample`;
    const largest = device.shares.toSorted((a, b) => b[1] - a[1]);
    const sum = (index) => device.shares.reduce((total, share) => total + share[index], 0);
    const parts = [`${clock(sample.time)}`, `${bytes(sum(2))} used, ${bytes(sum(1))} granted of ${bytes(device.capacity)}`];
    if (device.utilization !== null && device.utilization !== undefined) parts.push(`GPU ${Math.round(device.utilization)} %`);
    if (device.temperature !== null && device.temperature !== undefined) parts.push(`${Math.round(device.temperature)} °C`);
    if (device.power !== null && device.power !== undefined) parts.push(`${Math.round(device.power)} W`);
    if (device.shares.length > 1 || device.names) {
      parts.push(...largest.slice(0, MOST_NAMES).map(([number, grant, usage]) => `${this.name(number)} ${bytes(usage)} of ${bytes(grant)}`));
    }
    if (largest.length > MOST_NAMES) parts.push(`${largest.length - MOST_NAMES} more`);
    return parts.join(" · ");
  }
}
