// The one stream of all tabs. Who comes later gets what is known first.

import { open } from "./stream.js";

const MOST_SAMPLES = 600;
const ports = new Set();
let state = null;
let samples = [];
let source = null;

function tell(kind, value) {
  if (kind === "state") state = value;
  if (kind === "samples") {
    // A stream that was opened again begins with all samples.
    samples = value.first ? value.samples : samples.concat(value.samples).slice(-MOST_SAMPLES);
  }
  for (const port of ports) port.postMessage({ kind, value });
  if (kind === "lost" && value.forever) source = null;
}

function hello(port) {
  ports.add(port);
  if (source === null) {
    source = open(tell);
    return;
  }
  if (samples.length) port.postMessage({ kind: "samples", value: { first: true, samples } });
  if (state !== null) port.postMessage({ kind: "state", value: state });
}

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => (data === "bye" ? ports.delete(port) : hello(port));
};
