// Elements, and numbers as people read them. Text is always set as text, never as markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => child != null && child !== false));
  return element;
}

export const number = n => n == null ? "–" : n.toLocaleString("en", { maximumFractionDigits: Math.abs(n) < 10 ? 2 : 0 });

export function bytes(n) {
  if (n == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) { n /= 1024; at++; }
  return `${number(n)} ${units[at]}`;
}

export function span(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000), d = Math.floor(s / 86400), hours = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  return d ? `${d} d ${hours} h` : hours ? `${hours} h ${m} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
}

export const moment = ms => ms == null ? "–" : new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");

export function bytesOf(base64) {
  return base64 == null ? null : Uint8Array.from(atob(base64), letter => letter.charCodeAt(0));
}

// The text of bytes; null if they are no UTF-8.
export function textOf(data) {
  try { return new TextDecoder("utf-8", { fatal: true }).decode(data); } catch { return null; }
}

export function hexDump(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.slice(at, at + 16)];
    const hex = part.map(one => one.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const letters = part.map(one => one >= 32 && one < 127 ? String.fromCharCode(one) : "·").join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex}  ${letters}`);
  }
  return lines.join("\n");
}

export function pairs(rows) {
  return h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value == null ? "–" : value)]));
}

// Columns are [title, is a number]; rows are lists of text or elements.
export function table(caption, columns, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map(([title, numeric]) => h("th", { scope: "col", class: numeric && "n" }, title)))),
      h("tbody", {}, rows.map(row => h("tr", {}, row.map((cell, at) =>
        h("td", { class: columns[at][1] ? "n" : null }, cell == null ? "–" : cell)))))));
}

// Puts new content in the place of old, and the focus back where it was, by id.
export function replace(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.id : "";
  const scrolled = [...parent.querySelectorAll(".scroll")].map(one => one.scrollLeft);
  parent.replaceChildren(...children.filter(child => child != null));
  parent.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

let saying = 0;
export function say(text) {
  document.getElementById("said").textContent = text;
  clearTimeout(saying);
  saying = setTimeout(() => { document.getElementById("said").textContent = ""; }, 6000);
}
