// News of the scheduler, by server-sent events. All tabs share one stream, in a worker, because a browser opens no more
// than six connections to one place; where there are no shared workers each tab has its own.

export function subscribe(listener) {
  if (typeof SharedWorker === "undefined") {
    open(listener);
    return;
  }
  const worker = new SharedWorker(new URL("worker.js", import.meta.url), { type: "module", name: "convgpu" });
  worker.onerror = () => open(listener);
  worker.port.onmessage = ({ data }) => listener(data.kind, data.value);
  addEventListener("pagehide", () => worker.port.postMessage("bye"));
  addEventListener("pageshow", (event) => event.persisted && worker.port.postMessage("hello"));
  worker.port.postMessage("hello");
}

// The listener gets `state` and `samples` as the feed made them, `alive` with the seconds since the scheduler
// answered when that is long, and `lost` when nobody answers any more.
export function open(listener) {
  const source = new EventSource(new URL("stream", import.meta.url));
  for (const kind of ["state", "samples", "alive"]) {
    source.addEventListener(kind, (event) => listener(kind, JSON.parse(event.data)));
  }
  // Unless it was told not to, the browser tries again by itself.
  source.onerror = () => listener("lost", { forever: source.readyState === EventSource.CLOSED });
  return source;
}
