// One card for each device: what it has, who has it now, what it does, and the chart.

import { readColours } from "./chart.js";
import { element, setHidden, setText } from "./dom.js";
import { Plot } from "./plot.js";
import { bytes, visible } from "./text.js";

export class Devices {
  // `name` returns the name of a container by its number.
  constructor(root, name) {
    this.root = root;
    this.name = name;
    this.cards = new Map();
    this.samples = [];
    this.unit = 1;
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
    const card = new Card(device.uuid, this.name);
    this.cards.set(device.uuid, card);
    this.root.append(card.root);
    card.plot.chart.recolour(this.colours);
    card.plot.show(this.samples, this.unit);
  }

  showPast(samples, unit) {
    this.samples = samples;
    this.unit = unit;
    for (const card of this.cards.values()) card.plot.show(samples, unit);
  }

  record(samples) {
    for (const card of this.cards.values()) card.plot.add(samples);
  }

  recolour() {
    this.colours = readColours();
    for (const card of this.cards.values()) card.plot.chart.recolour(this.colours);
  }
}

class Card {
  constructor(uuid, name) {
    this.title = element("h3");
    this.notes = element("p", { className: "notes" });
    this.figures = element("dl", { className: "figures" });
    this.values = new Map();
    this.plot = new Plot(({ devices }) => devices[uuid] && { ...devices[uuid], names: true }, name);
    this.root = element("article", { className: "device" });
    this.root.dataset.uuid = uuid;
    this.root.append(this.title, this.notes, this.figures, ...this.plot.parts);
  }

  show(device) {
    setText(this.title, `GPU ${device.index} · ${visible(device.name, 60)}`);
    const notes = [device.health === "ok" ? "" : visible(device.health), device.drained ? "drained: no new grants" : ""];
    setText(this.notes, notes.filter(Boolean).join(" · "));
    setHidden(this.notes, !notes.some(Boolean));
    const granted = Math.max(0, device.granted - device.out);
    const free = Math.max(0, device.capacity - granted - device.settling);
    this.figure("Free", bytes(free));
    this.figure("Granted", bytes(granted));
    this.figure("Used", bytes(device.used - device.out));
    this.figure("Settling", bytes(device.settling), device.settling === 0);
    this.figure("On the host", bytes(device.out), device.out === 0);
    this.showMoves(device.moves);
    this.figure("External", bytes(device.external), device.external === 0);
    this.figure("Capacity", bytes(device.capacity));
    this.showTelemetry(device.telemetry);
    this.plot.scale(device.capacity);
    this.plot.label(`GPU ${device.index}: ${bytes(device.used - device.out)} used and ${bytes(granted)} granted of ${bytes(device.capacity)}; over time`);
  }

  // Nothing before memory left for the first time.
  showMoves({ moved_out: out, moved_in: back, rate_out: quickOut, rate_in: quickBack, drain }) {
    const none = out === 0 && back === 0;
    this.figure("Moved out", `${bytes(out)}, ${bytes(quickOut)}/s`, none);
    this.figure("Moved back", `${bytes(back)}, ${bytes(quickBack)}/s`, none);
    this.figure("Stops within", `${Math.round(drain * 1000)} ms`, none);
  }

  showTelemetry({ utilization, temperature, power, power_limit: limit }) {
    this.figure("Busy", `${utilization} %`, utilization === null);
    this.figure("Temperature", `${temperature} °C`, temperature === null);
    this.figure("Power", limit === null ? `${Math.round(power)} W` : `${Math.round(power)} of ${Math.round(limit)} W`, power === null);
  }

  figure(name, text, hidden = false) {
    let value = this.values.get(name);
    if (!value) {
      value = element("dd");
      const pair = element("div");
      pair.append(element("dt", { textContent: name }), value);
      this.figures.append(pair);
      this.values.set(name, value);
    }
    setText(value, text);
    setHidden(value.parentElement, hidden);
  }
}
