// Figures and names as people read them. Names come from programs and images: they are shown, never trusted.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(size) {
  if (!Number.isFinite(size)) return "?";
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || Math.abs(size) >= 100 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}

// Clocks are set back at times: nothing has lasted less than no time.
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function clock(seconds) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? "?" : date.toLocaleTimeString([], { hour12: false });
}

// Control characters and those that turn the direction of text could make one name look like another.
export function visible(text, most = 256) {
  const known = String(text ?? "");
  const shown = known.length > most ? `${known.slice(0, most)}…` : known;
  return shown.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

export function containerName(container) {
  return visible(container.engine?.name || shortVolume(container.name));
}

// A volume without a name of its own is called by 64 hexadecimal digits.
export function shortVolume(name) {
  return /^[0-9a-f]{64}$/.test(name) ? name.slice(0, 12) : name;
}

// With the date, for what is not of today.
export function day(seconds) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? "?" : date.toLocaleString([], { hour12: false, dateStyle: "short", timeStyle: "medium" });
}

export function userOf(container) {
  return visible(container.engine?.labels?.["convgpu.user"] ?? "", 64);
}

export function labelsOf(container) {
  return Object.entries(container.engine?.labels ?? {}).map(([key, value]) => visible(`${key}=${value}`, 260)).join(", ");
}
