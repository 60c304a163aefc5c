// The page of one container: why it waits, its memory over time, its processes and their allocations, its history.

import { Table, describe, element, setHidden, setText } from "./dom.js";
import { Plot } from "./plot.js";
import { Decisions, behind, cardTurn, stateOf, turn, why } from "./tables.js";
import { bytes, containerName, day, duration, labelsOf, userOf, visible } from "./text.js";

const MOST_EVENTS = 500;
const $ = (id) => document.getElementById(id);

export class ContainerPage {
  // `past` returns the samples that are shown, and the seconds that each stands for.
  constructor(view, past) {
    this.view = view;
    this.past = past;
    this.volume = null;
    this.plots = new Map();
    this.colours = null;
    this.heard = 0; // sequence number of the newest event in the table
    this.history = new Decisions($("history"), $("no-history"), view, { all: true, most: MOST_EVENTS });
    this.allocations = new Table($("allocations"), [
      (node, row) => setText(node, row.process),
      (node, row) => setText(node, row.call),
      (node, row) => setText(node, row.uuid ? view.index(row.uuid) : ""),
      (node, row) => setText(node, String(row.count)),
      (node, row) => setText(node, bytes(row.size)),
      (node, row) => setText(node, row.age === null ? "" : duration(row.age)),
    ]);
    $("ask-allocations").addEventListener("click", () => this.askAllocations());
  }

  open(volume) {
    if (this.volume === volume) return;
    this.volume = volume;
    this.heard = 0;
    for (const plot of this.plots.values()) plot.root.remove();
    this.plots.clear();
    this.history.show([]);
    this.showAllocations([]);
    setText($("allocations-note"), "");
  }

  show(state) {
    const container = state.containers.find(({ name }) => name === this.volume);
    setText($("container-title"), container ? containerName(container) : this.view.name(this.volume));
    setHidden($("container-gone"), container !== undefined);
    this.showWaiting(container?.waiting ?? []);
    describe($("container-facts"), container ? this.facts(container) : [["Volume", visible(this.volume)]]);
    this.showProcesses(container?.sessions ?? []);
    $("ask-allocations").disabled = !container?.sessions.length;
    this.showPlots(state.devices, container);
    this.readHistory(state.events);
  }

  showWaiting(waiting) {
    const texts = waiting.map((one) => {
      const others = behind(one, this.view);
      const parts = [`Waits ${duration(this.view.now() - one.since)} for ${bytes(one.size)} on GPU ${this.view.index(one.uuid)}: ${why(one)}`];
      if (one.free > 0) parts.push(`${bytes(one.free)} are free`);
      if (others) parts.push(`held by ${others}`);
      return [...parts, turn(one, this.view), visible(one.call, 64)].join(" · ");
    });
    const list = $("container-waits");
    while (list.children.length > texts.length) list.lastElementChild.remove();
    texts.forEach((text, index) => setText(list.children[index] ?? list.appendChild(element("li")), text));
  }

  facts(container) {
    const engine = container.engine;
    return [
      ["State", `${stateOf(container)} for ${duration(this.view.now() - (container.since ?? container.created))}`],
      ["User", userOf(container)],
      ["Image", visible(engine?.image ?? "")],
      ["Labels", labelsOf(container)],
      ...container.devices.map((share) => [
        `GPU ${this.view.index(share.uuid)}`,
        `uses ${bytes(share.usage)}, granted ${bytes(share.grant)}, limit ${bytes(share.limit)}` + (container.turn ? `, ${bytes(share.out)} on the host, ${bytes(share.fixed)} fixed` : ""),
      ]),
      ["Card turn", cardTurn(container, this.view)],
      ["Priority", String(container.priority)],
      ["Gang", visible(container.gang)],
      ["Admitted", container.admit === "whole" ? "as a whole" : ""],
      ["GPUs chosen by", visible(container.placement?.policy ?? "")],
      ["Created", day(container.created)],
      ["Container", engine ? visible(engine.id, 12) : "not known to the Engine"],
      ["Volume", visible(container.name)],
    ];
  }

  showProcesses(sessions) {
    const texts = sessions.map((one) => {
      const used = one.devices.reduce((sum, { usage }) => sum + usage, 0);
      return `${visible(one.program, 64)} (pid ${one.pid || "?"}): ${bytes(used)}, for ${duration(this.view.now() - one.since)}`;
    });
    if (!texts.length) texts.push("none is connected");
    const list = $("container-processes");
    while (list.children.length > texts.length) list.lastElementChild.remove();
    texts.forEach((text, index) => setText(list.children[index] ?? list.appendChild(element("li")), text));
  }

  // A chart for each device on which it has memory, or had some in the time that is shown.
  showPlots(devices, container) {
    const limits = new Map(container?.devices.map(({ uuid, limit }) => [uuid, limit]));
    const { samples, unit } = this.past();
    for (const device of devices) {
      const has = container?.devices.some(({ uuid, grant }) => uuid === device.uuid && grant > 0);
      if (this.plots.has(device.uuid) || !(has || samples.some((sample) => this.share(sample, device.uuid)))) continue;
      this.addPlot(device, samples, unit);
    }
    for (const [uuid, plot] of this.plots) {
      // Of a container that is gone the limit is not known: its largest grant is the scale.
      const height = limits.get(uuid) ?? Math.max(1, ...plot.chart.samples.map((sample) => this.share(sample, uuid)?.[1] ?? 0));
      if (plot.height === height) continue;
      plot.height = height;
      plot.scale(height);
      plot.chart.redraw();
    }
    setHidden($("no-plots"), this.plots.size > 0);
  }

  addPlot(device, samples, unit) {
    const plot = new Plot((sample) => this.pick(sample, device.uuid, plot), (number) => this.view.nameOf(number));
    plot.root = element("article", { className: "device" });
    plot.root.append(element("h3", { textContent: `GPU ${device.index} · ${visible(device.name, 60)}` }), ...plot.parts);
    plot.label(`Its memory on GPU ${device.index} over time`);
    $("container-plots").append(plot.root);
    this.plots.set(device.uuid, plot);
    if (this.colours) plot.chart.recolour(this.colours);
    plot.height = 0;
    plot.show(samples, unit);
  }

  share(sample, uuid) {
    const number = this.view.number(this.volume);
    return sample.devices[uuid]?.shares.find((share) => share[0] === number);
  }

  pick(sample, uuid, plot) {
    const share = this.share(sample, uuid);
    return { capacity: plot?.height || 1, settling: 0, shares: share ? [share] : [] };
  }

  showPast(samples, unit) {
    for (const plot of this.plots.values()) plot.show(samples, unit);
  }

  record(samples) {
    for (const plot of this.plots.values()) plot.add(samples);
  }

  recolour(colours) {
    this.colours = colours;
    for (const plot of this.plots.values()) plot.chart.recolour(colours);
  }

  // Asks for the history when it has gone on; the events of the stream say when.
  async readHistory(events) {
    const newest = events.findLast(({ container }) => container === this.volume)?.sequence ?? 1;
    if (newest <= this.heard) return;
    this.heard = newest;
    const volume = this.volume;
    const answer = await ask(`history?container=${encodeURIComponent(volume)}&limit=${MOST_EVENTS}`);
    if (volume !== this.volume) return;
    if (answer.events) this.history.show(answer.events);
    else this.heard = 0;
    setText($("history-count"), answer.error ?? (answer.events.length === MOST_EVENTS ? `the newest ${MOST_EVENTS}` : String(answer.events.length)));
  }

  async askAllocations() {
    const volume = this.volume;
    setText($("allocations-note"), "asking");
    const answer = await ask(`allocations?container=${encodeURIComponent(volume)}`);
    if (volume !== this.volume) return;
    const silent = answer.processes?.filter((one) => one.answer !== "listed").length ?? 0;
    setText($("allocations-note"), answer.error ?? (silent ? `${silent} of its processes did not answer` : `at ${new Date().toLocaleTimeString([], { hour12: false })}`));
    this.showAllocations(answer.processes ?? []);
  }

  showAllocations(processes) {
    const rows = processes.flatMap((process) => {
      const groups = Map.groupBy(process.allocations, ({ call, uuid }) => `${call} ${uuid}`);
      return [...groups.values()].map((found) => ({
        process: `${visible(process.program, 64)} (pid ${process.pid || "?"})`,
        call: visible(found[0].call, 64),
        uuid: found[0].uuid,
        count: found.length,
        size: found.reduce((sum, { size }) => sum + size, 0),
        age: found.reduce((oldest, { age }) => (age === null ? oldest : Math.max(oldest ?? 0, age)), null),
      }));
    });
    rows.sort((a, b) => b.size - a.size);
    this.allocations.show(rows, (row) => `${row.process} ${row.call} ${row.uuid}`);
    setHidden($("allocations").parentElement, rows.length === 0);
  }
}

export async function ask(place) {
  try {
    const answer = await fetch(new URL(place, import.meta.url));
    const text = await answer.text();
    return answer.ok ? JSON.parse(text) : { error: text.trim() || `error ${answer.status}` };
  } catch {
    return { error: "convgpu dashboard does not answer" };
  }
}
