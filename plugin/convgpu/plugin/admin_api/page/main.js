// Puts what the stream says into the page.

import { readColours } from "./chart.js";
import { ContainerPage, ask } from "./container.js";
import { Devices } from "./devices.js";
import { setHidden, setText } from "./dom.js";
import { subscribe } from "./stream.js";
import { ContainerList, Decisions, Queue } from "./tables.js";
import { bytes, clock, containerName, duration, shortVolume, visible } from "./text.js";

const QUIET = 3; // seconds without any news after which the page says so
const THEMES = ["system", "dark", "light"];
const KEPT = 600; // samples
const $ = (id) => document.getElementById(id);

let state = null;
let heard = performance.now();
let offset = 0; // seconds by which the scheduler's clock is ahead of the browser's
let lost = null;
let silence = 0; // seconds for which the scheduler has not answered, as far as told
let live = []; // samples of the last ten minutes, one a second
let shown = { samples: live, unit: 1 }; // what the charts show

const view = {
  indices: new Map(),
  names: new Map(),
  numbered: new Map(),
  now: () => Date.now() / 1000 + offset,
  index: (uuid) => view.indices.get(uuid) ?? visible(uuid, 12),
  name: (volume) => view.names.get(volume) ?? visible(shortVolume(volume)),
  number: (volume) => state?.numbers[volume],
  nameOf: (number) => (number < 0 ? "others" : (view.numbered.get(number) ?? "?")),
};

const devices = new Devices($("devices"), view.nameOf);
const queue = new Queue($("queue"), $("no-queue"), $("queue-count"), view);
const parts = { count: $("containers-count"), none: $("no-containers"), noMatch: $("no-match") };
const containers = new ContainerList($("container-table"), parts, view);
const decisions = new Decisions($("decisions"), $("no-decisions"), view);
const page = new ContainerPage(view, () => shown);

function showState(news) {
  state = news;
  offset = state.time - Date.now() / 1000;
  view.indices = new Map(state.devices.map(({ uuid, index }) => [uuid, String(index)]));
  view.names = new Map(Object.entries(state.names).map(([volume, name]) => [volume, visible(name)]));
  for (const one of state.containers) view.names.set(one.name, containerName(one));
  view.numbered = new Map(Object.entries(state.numbers).map(([volume, number]) => [number, view.name(volume)]));
  devices.show(state.devices);
  setHidden($("no-devices"), state.devices.length > 0 || Boolean(state.away));
  queue.show(state.containers);
  containers.show(state.containers);
  decisions.show(state.events);
  if (page.volume) page.show(state);
  const count = (name) => state.containers.filter((one) => one.state === name).length;
  const free = state.devices.reduce((sum, one) => sum + Math.max(0, one.capacity - Math.max(0, one.granted - one.out) - one.settling), 0);
  setText($("host"), visible(state.host, 80));
  setText($("summary"), `${count("running")} run, ${count("waiting")} wait, ${bytes(free)} free · policy ${visible(state.policy, 40)}`);
  const waits = count("waiting") ? `(${count("waiting")} wait) ` : "";
  document.title = `${waits}${page.volume ? `${view.name(page.volume)} · ` : ""}ConvGPU`;
}

function showStatus() {
  const quiet = (performance.now() - heard) / 1000;
  let [kind, text, alarm] = ["live", "live", ""];
  if (lost?.forever) {
    [kind, text, alarm] = ["lost", "ended", "This page is served no more. Start it again: convgpu dashboard"];
  } else if (lost || quiet > QUIET) {
    [kind, text] = ["lost", "connection lost"];
    alarm = "convgpu dashboard does not answer: is it still running? The page goes on by itself when it is back.";
  } else if (silence > QUIET) {
    [kind, text] = ["away", "scheduler away"];
    alarm = `The scheduler has not answered for ${duration(silence)}.`;
  } else if (state === null) {
    [kind, text] = ["connecting", "connecting"];
  } else if (state.away) {
    [kind, text, alarm] = ["away", "scheduler away", visible(state.away.text, 500)];
  }
  if (alarm && state?.heard) alarm += ` (The figures are of ${clock(state.heard)}.)`;
  const status = $("status");
  if (status.dataset.state !== kind) status.dataset.state = kind;
  setText(status.querySelector(".text"), text);
  setText($("away"), alarm);
  setHidden($("away"), !alarm);
  document.body.classList.toggle("stale", Boolean(alarm));
}

// What takes time to draw waits for the next frame, and of several states only the newest is drawn.
let pending = null;
subscribe((kind, value) => {
  if (kind === "lost") {
    lost = value;
    showStatus();
    return;
  }
  heard = performance.now();
  lost = null;
  silence = kind === "alive" ? value : 0;
  if (kind === "alive") {
    showStatus();
    return;
  }
  if (kind === "samples") {
    record(value);
    return;
  }
  if (pending === null && !document.hidden) requestAnimationFrame(drawPending);
  pending = value;
});

function drawPending() {
  if (pending === null) return;
  const news = pending;
  pending = null;
  showState(news);
  showStatus();
}

document.addEventListener("visibilitychange", () => document.hidden || drawPending());
setInterval(() => {
  drawPending();
  if (state) queue.show(state.containers);
  showStatus();
}, 1000);

// -- memory over time ---------------------------------------------------------------------------------------

function record({ samples, first }) {
  live = (first ? samples : live.concat(samples)).slice(-KEPT);
  if (shown.unit !== 1) return;
  shown = { samples: live, unit: 1 };
  if (first) showSpan();
  else for (const one of [devices, page]) one.record(samples);
}

function showSpan() {
  for (const one of [devices, page]) one.showPast(shown.samples, shown.unit);
  if (state && page.volume) page.show(state);
}

// Longer spans are asked for, and asked for again as often as they have a new sample.
let refresh = null;
async function chooseSpan(unit) {
  clearTimeout(refresh);
  setText($("span-note"), "");
  if (unit === 1) {
    shown = { samples: live, unit };
    showSpan();
    return;
  }
  const answer = await ask(`usage?step=${unit}`);
  if (Number($("span").value) !== unit) return;
  if (answer.samples) {
    shown = { samples: answer.samples, unit };
    showSpan();
  }
  setText($("span-note"), answer.error ?? spanNote(answer.samples, unit));
  refresh = setTimeout(() => chooseSpan(unit), unit * 1000);
}

function spanNote(samples, unit) {
  if (!samples.length) return "The scheduler has no sample as old as that yet.";
  const missing = samples[0].time > view.now() - (KEPT - 2) * unit;
  return missing ? `The scheduler has samples since ${clock(samples[0].time)}.` : `Each column is the mean of ${unit} seconds.`;
}

$("span").addEventListener("change", ({ target }) => chooseSpan(Number(target.value)));

// -- the page of a container ----------------------------------------------------------------------------------

function route() {
  const name = /^#container\/(.+)$/.exec(location.hash)?.[1];
  page.volume = name ? page.volume : null;
  if (name) page.open(decodeURIComponent(name));
  setHidden($("overview"), Boolean(name));
  setHidden($("container"), !name);
  if (state) showState(state);
  if (name) $("container-title").focus();
}

addEventListener("hashchange", route);

// -- theme, filter, keys --------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText($("theme").querySelector("span"), theme);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // Private windows may refuse: then it lasts as long as the page.
  }
  recolour();
}

function recolour() {
  devices.recolour();
  page.recolour(readColours());
}

function nextTheme() {
  const now = THEMES.indexOf(document.documentElement.dataset.theme);
  setTheme(THEMES[(now + 1) % THEMES.length]);
}

function storedTheme() {
  try {
    const theme = localStorage.getItem("theme");
    return THEMES.includes(theme) ? theme : "system";
  } catch {
    return "system";
  }
}

$("theme").addEventListener("click", nextTheme);
$("keys").addEventListener("click", () => $("help").showModal());
$("filter").addEventListener("input", ({ target }) => containers.filter(target.value));
$("all-decisions").addEventListener("change", ({ target }) => decisions.choose(target.checked));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (target === $("filter")) {
    if (key === "Escape") {
      target.value = "";
      containers.filter("");
      target.blur();
    }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const actions = { "/": () => $("filter").focus(), t: nextTheme, "?": () => $("help").showModal() };
  if (page.volume) Object.assign(actions, { Escape: () => history.back(), "/": undefined });
  if (!actions[key]) return;
  event.preventDefault();
  actions[key]();
});

setTheme(storedTheme());
route();
showStatus();
