// One card for each device: what it has, who has it now, and the chart.

import { Chart, readColours, seconds } from "./chart.js";
import { element, setHidden, setText } from "./dom.js";
import { bytes, visible } from "./text.js";

export class Devices {
  constructor(root) {
    this.root = root;
    this.cards = new Map();
    this.samples = [];
    this.colours = readColours();
  }

  show(devices) {
    const known = new Set(devices.map(({ uuid }) => uuid));
    for (const [uuid, card] of this.cards) {
      if (known.has(uuid)) continue;
      card.root.remove();
      this.cards.delete(uuid);
    }
    for (const device of devices) {
      if (!this.cards.has(device.uuid)) this.add(device);
      this.cards.get(device.uuid).show(device);
    }
  }

  add(device) {
    const card = new Card(device.uuid);
    this.cards.set(device.uuid, card);
    this.root.append(card.root);
    card.chart.recolour(this.colours);
    card.chart.add(this.samples, true);
  }

  record({ samples, first }) {
    this.samples = first ? samples : this.samples.concat(samples).slice(-seconds);
    for (const card of this.cards.values()) card.chart.add(samples, first);
  }

  recolour() {
    this.colours = readColours();
    for (const card of this.cards.values()) card.chart.recolour(this.colours);
  }
}

class Card {
  constructor(uuid) {
    this.title = element("h3");
    this.notes = element("p", { className: "notes" });
    this.figures = element("dl", { className: "figures" });
    this.values = new Map();
    const canvas = element("canvas", { className: "past", role: "img", tabIndex: 0 });
    const now = element("canvas", { className: "now", ariaHidden: "true" });
    this.canvas = canvas;
    this.top = element("span", { className: "top" });
    const axis = element("p", { className: "axis", ariaHidden: "true" });
    axis.append(...["-10 min", "-5 min", "now"].map((text) => element("span", { textContent: text })));
    const plot = element("div", { className: "plot" });
    plot.append(this.top, canvas, now);
    this.root = element("article", { className: "device" });
    this.root.dataset.uuid = uuid;
    this.root.append(this.title, this.notes, this.figures, plot, axis);
    this.chart = new Chart(canvas, now, uuid);
  }

  show(device) {
    setText(this.title, `GPU ${device.index} · ${visible(device.name, 60)}`);
    const notes = [device.health === "ok" ? "" : visible(device.health), device.drained ? "drained: no new grants" : ""];
    setText(this.notes, notes.filter(Boolean).join(" · "));
    setHidden(this.notes, !notes.some(Boolean));
    const granted = Math.max(0, device.granted - device.out);
    const free = Math.max(0, device.capacity - granted - device.settling);
    this.figure("Granted", granted);
    this.figure("Used", device.used - device.out);
    this.figure("Free", free);
    this.figure("Settling", device.settling, device.settling === 0);
    this.figure("On the host", device.out, device.out === 0);
    this.figure("External", device.external, device.external === 0);
    this.figure("Capacity", device.capacity);
    setText(this.top, bytes(device.capacity));
    const text = `GPU ${device.index}: ${bytes(device.used - device.out)} used and ${bytes(granted)} granted of ${bytes(device.capacity)}`;
    if (this.canvas.ariaLabel !== text) this.canvas.ariaLabel = text;
  }

  figure(name, size, hidden = false) {
    let value = this.values.get(name);
    if (!value) {
      value = element("dd");
      const pair = element("div");
      pair.append(element("dt", { textContent: name }), value);
      this.figures.append(pair);
      this.values.set(name, value);
    }
    setText(value, bytes(size));
    setHidden(value.parentElement, hidden);
  }
}
