// Puts what the stream says into the page.

import { setHidden, setText, element } from "./dom.js";
import { Devices } from "./devices.js";
import { ContainerList, Decisions, Queue } from "./tables.js";
import { bytes, clock, containerName, duration, shortVolume, visible } from "./text.js";
import { subscribe } from "./stream.js";

const QUIET = 3; // seconds without any news after which the page says so
const THEMES = ["system", "dark", "light"];
const $ = (id) => document.getElementById(id);

let state = null;
let heard = performance.now();
let offset = 0; // seconds by which the scheduler's clock is ahead of the browser's
let lost = null;
let silence = 0; // seconds for which the scheduler has not answered, as far as told

const view = {
  indices: new Map(),
  names: new Map(),
  now: () => Date.now() / 1000 + offset,
  index: (uuid) => view.indices.get(uuid) ?? visible(uuid, 12),
  name: (volume) => view.names.get(volume) ?? visible(shortVolume(volume)),
  number: (volume) => state.numbers[volume],
};

const devices = new Devices($("devices"));
const queue = new Queue($("queue"), $("no-queue"), $("queue-count"), view);
const parts = { count: $("containers-count"), none: $("no-containers"), noMatch: $("no-match") };
const containers = new ContainerList($("container-table"), parts, view, openDetails);
const decisions = new Decisions($("decisions"), $("no-decisions"), view);

function showState(news) {
  state = news;
  offset = state.time - Date.now() / 1000;
  view.indices = new Map(state.devices.map(({ uuid, index }) => [uuid, String(index)]));
  view.names = new Map(state.containers.map((one) => [one.name, containerName(one)]));
  devices.show(state.devices);
  setHidden($("no-devices"), state.devices.length > 0 || Boolean(state.away));
  queue.show(state.containers);
  containers.show(state.containers);
  decisions.show(state.events);
  const count = (name) => state.containers.filter((one) => one.state === name).length;
  setText($("summary"), `${count("running")} run, ${count("waiting")} wait · policy ${visible(state.policy, 40)}`);
  document.title = count("waiting") ? `(${count("waiting")} wait) ConvGPU` : "ConvGPU";
  if ($("details").open) fillDetails();
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
    devices.record(value);
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

// -- details ------------------------------------------------------------------------------------------------

let opened = null;

function openDetails(container) {
  opened = container.name;
  fillDetails();
  $("details").showModal();
}

function fillDetails() {
  const container = state.containers.find(({ name }) => name === opened);
  if (!container) {
    $("details").close();
    return;
  }
  setText($("details-title"), containerName(container));
  const rows = [
    ["State", container.state],
    ["Volume", visible(container.name)],
    ["Container", container.engine ? `${visible(container.engine.name)} (${visible(container.engine.id, 12)})` : "not known"],
    ["Image", visible(container.engine?.image ?? "")],
    ["Priority", String(container.priority)],
    ["Made at", clock(container.created)],
    ...container.devices.map((share) => [
      `GPU ${view.index(share.uuid)}`,
      `uses ${bytes(share.usage)}, granted ${bytes(share.grant)}, limit ${bytes(share.limit)}`,
    ]),
    ...container.waiting.map((one) => [
      "Waits",
      `${visible(one.call, 64)} for ${bytes(one.size)} on GPU ${view.index(one.uuid)}, for ${duration(view.now() - one.since)}`,
    ]),
  ];
  const pairs = rows.filter(([, text]) => text).flatMap(([name, text]) => [
    element("dt", { textContent: name }),
    element("dd", { textContent: text }),
  ]);
  $("details").querySelector("dl").replaceChildren(...pairs);
  const processes = container.sessions.map((one) => {
    const used = one.devices.reduce((sum, { usage }) => sum + usage, 0);
    return element("li", { textContent: `${visible(one.program, 64)} (pid ${one.pid || "?"}): ${bytes(used)}` });
  });
  if (!processes.length) processes.push(element("li", { textContent: "none is connected" }));
  $("details").querySelector("ul").replaceChildren(...processes);
}

// -- theme, filter, keys --------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText($("theme").querySelector("span"), theme);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // Private windows may refuse: then it lasts as long as the page.
  }
  devices.recolour();
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
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => devices.recolour());

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
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const action = { "/": () => $("filter").focus(), t: nextTheme, "?": () => $("help").showModal() }[key];
  if (!action) return;
  event.preventDefault();
  action();
});

setTheme(storedTheme());
showStatus();
