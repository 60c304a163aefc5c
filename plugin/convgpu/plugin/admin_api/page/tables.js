// The queue, the containers and the last decisions.

import { Table, element, setHidden, setText } from "./dom.js";
import { bytes, clock, containerName, duration, visible } from "./text.js";

const WHY = {
  memory: "not enough is free",
  turn: "others come first",
  card: "it waits for its card turn",
  safety: "it would fit, but then not everybody could end",
  gang: "others of its gang have not come",
  drained: "the GPU is drained",
  recovering: "the scheduler has just started",
};
const STATES = { created: "created", running: "runs", waiting: "waits", ended: "ended" };
const TURNS = { stopping: "stops", stopped: "stands still", restoring: "comes back", busy: "busy", waiting: "waits for its card turn" };
const WEIGHTY = new Set(["paused", "granted", "rejected"]);
const NOTABLE = new Set([...WEIGHTY, "displaced", "suspended", "resumed", "busy", "limited", "overused", "stopped"]);
const MOST_BEHIND = 3;

const cell = (text) => (node, item) => {
  const shown = text(item);
  setText(node, shown);
  if (node.title !== shown) node.title = shown;
};

function swatch(node, number, name) {
  const mark = node.firstElementChild ?? node.appendChild(element("i", { className: "swatch", ariaHidden: "true" }));
  const text = node.children[1] ?? node.appendChild(element("bdi"));
  const colour = number === undefined ? "none" : String(number % 12);
  if (mark.dataset.band !== colour) mark.dataset.band = colour;
  setText(text, name);
  if (node.title !== name) node.title = name;
}

export class Queue {
  constructor(table, empty, count, view) {
    this.empty = empty;
    this.count = count;
    this.table = new Table(table, [
      (node, { container }) => swatch(node, view.number(container.name), containerName(container)),
      cell(({ one }) => view.index(one.uuid)),
      cell(({ one }) => bytes(one.size)),
      cell(({ one }) => duration(view.now() - one.since)),
      cell(({ one }) => (WHY[one.reason] ?? visible(one.reason)) + (one.reason === "memory" && one.missing > 0 ? ` (${bytes(one.missing)} missing)` : "")),
      cell(({ one }) => behind(one, view)),
      cell(({ one }) => `${visible(one.call, 64)} · pid ${one.pid || "?"}`),
    ]);
  }

  show(containers) {
    const waiting = containers.flatMap((container) => container.waiting.map((one) => ({ container, one })));
    waiting.sort((a, b) => a.one.ahead - b.one.ahead || a.one.since - b.one.since);
    const seen = new Map();
    this.table.show(waiting, ({ container, one }) => {
      const name = `${container.name} ${one.uuid} ${one.pid} ${one.since} ${one.size}`;
      seen.set(name, (seen.get(name) ?? 0) + 1);
      return `${name} ${seen.get(name)}`;
    });
    setText(this.count, waiting.length ? String(waiting.length) : "");
    setHidden(this.empty, waiting.length > 0);
    setHidden(this.table.body.parentElement, waiting.length === 0);
  }
}

function behind({ behind: names, ahead }, view) {
  const shown = names.slice(0, MOST_BEHIND).map((name) => view.name(name));
  if (names.length > MOST_BEHIND) shown.push(`${names.length - MOST_BEHIND} more`);
  const order = ahead > 0 ? `${ahead} ahead of it` : "";
  return [shown.join(", "), order].filter(Boolean).join(" · ");
}

export class ContainerList {
  constructor(table, parts, view, onOpen) {
    this.parts = parts;
    this.wanted = "";
    this.containers = [];
    this.table = new Table(table, [
      (node, item) => swatch(node, view.number(item.name), containerName(item)),
      state,
      cell((item) => duration(view.now() - (item.since ?? item.created))),
      (node, item) => meters(node, item, view),
      cell((item) => String(item.sessions.length)),
      cell((item) => visible(item.engine?.image ?? "", 120)),
    ]);
    const open = (row) => row?.item && onOpen(row.item);
    this.table.body.addEventListener("click", ({ target }) => open(target.closest("tr")));
    this.table.body.addEventListener("keydown", ({ key, target }) => key === "Enter" && open(target.closest("tr")));
  }

  filter(text) {
    this.wanted = text.trim().toLowerCase();
    this.show(this.containers);
  }

  show(containers) {
    this.containers = containers;
    const words = (item) => `${item.name} ${item.engine?.name ?? ""} ${item.engine?.image ?? ""} ${stateOf(item)}`;
    const chosen = this.wanted ? containers.filter((item) => words(item).toLowerCase().includes(this.wanted)) : containers;
    this.table.show(chosen, (item) => item.name);
    const all = containers.length;
    setText(this.parts.count, all ? (chosen.length === all ? String(all) : `${chosen.length} of ${all}`) : "");
    setHidden(this.parts.none, all > 0);
    setHidden(this.parts.noMatch, all === 0 || chosen.length > 0);
    setHidden(this.table.body.parentElement, chosen.length === 0);
  }
}

function stateOf(item) {
  const turn = ["created", "ended"].includes(item.state) ? undefined : TURNS[item.residency];
  if (item.residency === "stopped" && item.suspended) return "suspended";
  return turn ?? STATES[item.state] ?? visible(item.state);
}

function state(node, item, row) {
  setText(node, stateOf(item));
  if (row.dataset.state !== item.state) row.dataset.state = item.state;
}

// A bar for each of its devices: usage in full colour, grant in pale colour, limit the whole.
function meters(node, item, view) {
  // A container may use every device and has memory on few: those are shown.
  const used = item.devices.filter(({ grant, usage }) => grant > 0 || usage > 0);
  const shares = used.length ? used : item.devices.slice(0, 1);
  while (node.children.length > shares.length) node.lastElementChild.remove();
  shares.forEach((share, index) => {
    const meter = node.children[index] ?? node.appendChild(newMeter());
    const [bar, text] = meter.children;
    const part = (size) => `${Math.min(100, (100 * size) / Math.max(share.limit, 1)).toFixed(1)}%`;
    setWidth(bar.children[0], part(share.grant));
    setWidth(bar.children[1], part(share.usage));
    const where = item.devices.length > 1 && used.length ? `GPU ${view.index(share.uuid)}: ` : "";
    const target = share.target === null || share.target === undefined ? "" : ` → ${bytes(share.target)}`;
    const out = share.out > 0 ? `, ${bytes(share.out)} on the host` : "";
    setText(text, `${where}${bytes(share.usage)}, ${bytes(share.grant)}, ${bytes(share.limit)}${target}${out}`);
  });
}

function newMeter() {
  const bar = element("span", { className: "bar", ariaHidden: "true" });
  bar.append(element("i", { className: "grant" }), element("i", { className: "usage" }));
  const meter = element("div", { className: "meter" });
  meter.append(bar, element("span"));
  return meter;
}

function setWidth(node, width) {
  if (node.style.width !== width) node.style.width = width;
}

export class Decisions {
  constructor(table, empty, view) {
    this.empty = empty;
    this.all = false;
    this.events = [];
    this.table = new Table(table, [
      cell((event) => clock(event.time)),
      (node, event, row) => {
        setText(node, visible(event.kind, 40));
        if (row.dataset.kind !== event.kind) row.dataset.kind = event.kind;
      },
      cell((event) => (event.container ? view.name(event.container) : "")),
      cell((event) => (event.uuid ? view.index(event.uuid) : "")),
      cell((event) => (Number.isFinite(event.size) ? bytes(event.size) : "")),
      cell(why),
      cell((event) => [event.program, event.call].filter(Boolean).map((text) => visible(text, 64)).join(" · ")),
      cell((event) => visible(event.cause ?? "", 64)),
    ]);
  }

  choose(all) {
    this.all = all;
    this.show(this.events);
  }

  show(events) {
    this.events = events;
    const chosen = this.all ? events : events.filter(({ kind }) => NOTABLE.has(kind));
    this.table.show(chosen.slice(-100).reverse(), ({ sequence }) => sequence);
    setHidden(this.empty, chosen.length > 0);
    setHidden(this.table.body.parentElement, chosen.length === 0);
  }
}

function why({ reason, waited, kind }) {
  const parts = [reason ? visible(reason, 200) : ""];
  if (Number.isFinite(waited)) parts.push(`${WEIGHTY.has(kind) ? "waited " : ""}${waited < 10 ? waited.toFixed(2) + " s" : duration(waited)}`);
  return parts.filter(Boolean).join(" · ");
}
