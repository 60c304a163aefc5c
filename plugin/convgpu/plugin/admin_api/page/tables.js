// The queue, the containers, and decisions.

import { Table, element, setHidden, setText } from "./dom.js";
import { bytes, clock, containerName, day, duration, labelsOf, userOf, visible } from "./text.js";

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
const AWAY = new Set(["stopping", "stopped", "restoring"]);
const WEIGHTY = new Set(["paused", "granted", "rejected"]);
const NOTABLE = new Set([...WEIGHTY, "displaced", "suspended", "resumed", "busy", "limited", "changed", "overused", "stopped"]);
const MOST_BEHIND = 3;

const cell = (text) => (node, item) => {
  const shown = text(item);
  setText(node, shown);
  if (node.title !== shown) node.title = shown;
};

// The name of a container, as the way to its page.
function link(node, number, volume, name) {
  const mark = node.firstElementChild ?? node.appendChild(element("i", { className: "swatch", ariaHidden: "true" }));
  const anchor = node.children[1] ?? node.appendChild(element("a", { tabIndex: -1 }));
  const colour = number === undefined ? "none" : String(number % 12);
  if (mark.dataset.band !== colour) mark.dataset.band = colour;
  const address = volume ? addressOf(volume) : "";
  if (anchor.getAttribute("href") !== address) anchor.setAttribute("href", address);
  setText(anchor, name);
  if (node.title !== name) node.title = name;
}

export const addressOf = (volume) => `#container/${encodeURIComponent(volume)}`;

export function why(one) {
  return (WHY[one.reason] ?? visible(one.reason)) + (one.reason === "memory" && one.missing > 0 ? ` (${bytes(one.missing)} missing)` : "");
}

// When it is served or given up, as far as the scheduler says so.
export function turn({ ahead, estimate, deadline }, view) {
  const parts = [ahead > 0 ? `${ahead} ahead of it` : "next on this GPU"];
  if (Number.isFinite(estimate)) parts.push(`about ${duration(estimate)} more, by past runs (an estimate)`);
  if (Number.isFinite(deadline)) parts.push(`rejected in ${duration(deadline - view.now())}`);
  return parts.join(" · ");
}

// What moved of a container whose memory can leave, and for whom it waits; nothing of another.
export function cardTurn({ residency, turn: its }, view) {
  if (!its) return "";
  const parts = [`stopped ${its.switches} times`, `${bytes(its.moved_out)} went out, ${bytes(its.moved_in)} came back`];
  if (Number.isFinite(its.drain)) parts.push(`last within ${Math.round(its.drain * 1000)} ms`);
  if (residency === "waiting" && its.since) parts.push(`waits ${duration(view.now() - its.since)}`);
  if (Number.isFinite(its.due)) parts.push(`gets it within ${duration(Math.max(0, its.due - view.now()))}`);
  if (its.behind.length) parts.push(`behind ${behind(its, view)}`);
  return parts.join(" · ");
}

export function behind({ behind: names }, view) {
  const shown = names.slice(0, MOST_BEHIND).map((name) => view.name(name));
  if (names.length > MOST_BEHIND) shown.push(`${names.length - MOST_BEHIND} more`);
  return shown.join(", ");
}

export class Queue {
  constructor(table, empty, count, view) {
    this.empty = empty;
    this.count = count;
    this.table = new Table(table, [
      (node, { container }) => link(node, view.number(container.name), container.name, containerName(container)),
      cell(({ one }) => duration(view.now() - one.since)),
      cell(({ one }) => bytes(one.size)),
      cell(({ one }) => view.index(one.uuid)),
      cell(({ one }) => why(one)),
      cell(({ one }) => behind(one, view)),
      cell(({ one }) => turn(one, view)),
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

export class ContainerList {
  constructor(table, parts, view) {
    this.parts = parts;
    this.wanted = "";
    this.containers = [];
    this.table = new Table(table, [
      (node, item) => link(node, view.number(item.name), item.name, containerName(item)),
      state,
      cell((item) => duration(view.now() - (item.since ?? item.created))),
      lines((share) => view.index(share.uuid)),
      lines((share) => bytes(share.usage) + (share.out > 0 ? `, ${bytes(share.out)} of it on the host` : "")),
      lines((share) => bytes(share.grant)),
      lines((share) => bytes(share.limit) + (Number.isFinite(share.target) ? ` → ${bytes(share.target)}` : "")),
      meters,
      cell(userOf),
      cell((item) => visible(item.engine?.image ?? "", 120)),
      cell((item) => String(item.sessions.length)),
    ]);
  }

  filter(text) {
    this.wanted = text.trim().toLowerCase();
    this.show(this.containers);
  }

  show(containers) {
    this.containers = containers;
    const words = (item) => [item.name, item.engine?.name, item.engine?.image, stateOf(item), labelsOf(item)].join(" ");
    const chosen = this.wanted ? containers.filter((item) => words(item).toLowerCase().includes(this.wanted)) : containers;
    this.table.show(chosen, (item) => item.name);
    const all = containers.length;
    setText(this.parts.count, all ? (chosen.length === all ? String(all) : `${chosen.length} of ${all}`) : "");
    setHidden(this.parts.none, all > 0);
    setHidden(this.parts.noMatch, all === 0 || chosen.length > 0);
    setHidden(this.table.body.parentElement, chosen.length === 0);
  }
}

export function stateOf(item) {
  const doing = ["created", "ended"].includes(item.state) ? undefined : TURNS[item.residency];
  if (item.residency === "stopped" && item.suspended) return "suspended";
  return doing ?? STATES[item.state] ?? visible(item.state);
}

function state(node, item, row) {
  setText(node, stateOf(item));
  const lives = !["created", "ended"].includes(item.state);
  const shown = lives && AWAY.has(item.residency) ? "away" : lives && item.residency === "waiting" ? "waiting" : item.state;
  if (row.dataset.state !== shown) row.dataset.state = shown;
}

// A container may use every device and has memory on few: those are shown.
function sharesOf(item) {
  const used = item.devices.filter(({ grant, usage }) => grant > 0 || usage > 0);
  return used.length ? used : item.devices.slice(0, 1);
}

// A line for each of its devices.
function lines(text) {
  return (node, item) => {
    const shares = sharesOf(item);
    while (node.children.length > shares.length) node.lastElementChild.remove();
    shares.forEach((share, index) => setText(node.children[index] ?? node.appendChild(element("div")), text(share)));
  };
}

// A bar for each of its devices: what is on it in full colour, what is on the host in the colour of that, grant in pale
// colour, limit the whole.
function meters(node, item) {
  const shares = sharesOf(item);
  while (node.children.length > shares.length) node.lastElementChild.remove();
  shares.forEach((share, index) => {
    const [bar, text] = (node.children[index] ?? node.appendChild(newMeter())).children;
    const part = (size) => Math.min(100, (100 * size) / Math.max(share.limit, 1));
    setWidth(bar.children[0], `${part(share.grant).toFixed(1)}%`);
    setWidth(bar.children[1], `${part(share.out > 0 ? share.usage : 0).toFixed(1)}%`);
    setWidth(bar.children[2], `${part(share.usage - share.out).toFixed(1)}%`);
    setText(text, `${Math.round(part(share.usage))} %`);
  });
}

function newMeter() {
  const bar = element("span", { className: "bar", ariaHidden: "true" });
  bar.append(...["grant", "out", "usage"].map((name) => element("i", { className: name })));
  const meter = element("div", { className: "meter" });
  meter.append(bar, element("span"));
  return meter;
}

function setWidth(node, width) {
  if (node.style.width !== width) node.style.width = width;
}

// Events, newest first; `all` shows also what went as expected.
export class Decisions {
  constructor(table, empty, view, { all = false, most = 100 } = {}) {
    this.empty = empty;
    this.all = all;
    this.most = most;
    this.events = [];
    this.table = new Table(table, [
      cell((event) => (view.now() - event.time > 43200 ? day(event.time) : clock(event.time))),
      (node, event, row) => {
        setText(node, visible(event.kind, 40));
        if (row.dataset.kind !== event.kind) row.dataset.kind = event.kind;
      },
      (node, event) => (event.container ? link(node, view.number(event.container), event.container, view.name(event.container)) : setText(node, "")),
      cell((event) => (event.uuid ? view.index(event.uuid) : "")),
      cell((event) => (Number.isFinite(event.size) ? bytes(event.size) : "")),
      cell((event) => reason(event, view)),
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
    this.table.show(chosen.slice(-this.most).reverse(), ({ sequence }) => sequence);
    setHidden(this.empty, chosen.length > 0);
    setHidden(this.table.body.parentElement, chosen.length === 0);
  }
}

function reason({ reason: text, waited, kind, behind: names = [], by }, view) {
  const parts = [text ? visible(WHY[text] ?? text, 200) : ""];
  if (names.length) parts.push(`behind ${behind({ behind: names }, view)}`);
  if (Number.isFinite(waited)) parts.push(`${WEIGHTY.has(kind) ? "waited " : ""}${waited < 10 ? waited.toFixed(2) + " s" : duration(waited)}`);
  if (by) parts.push(`by ${visible(by, 64)}`);
  return parts.filter(Boolean).join(" · ");
}
