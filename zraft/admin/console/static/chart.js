// Small drawings: a line of the last minutes, and a histogram of durations.

const NS = "http://www.w3.org/2000/svg";
const KEPT = 60;

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export class History {
  constructor() { this.values = []; }
  add(value) { this.values.push(value); if (this.values.length > KEPT) this.values.shift(); }
}

export function line(values, label) {
  const most = Math.max(1, ...values), step = 100 / (KEPT - 1), from = 100 - Math.max(0, values.length - 1) * step;
  const points = values.map((v, at) => `${(from + at * step).toFixed(2)},${(29 - 28 * v / most).toFixed(2)}`).join(" ");
  return svg("svg", { class: "line", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("polygon", { points: `${from.toFixed(2)},30 ${points} 100,30` }), svg("polyline", { points }));
}

const shown = ms => ms >= 1000 ? `${ms / 1000} s` : ms >= 1 ? `${ms} ms` : `${Math.round(ms * 1000)} µs`;

// The buckets from the first to the last that have something in them.
export function bars(histogram) {
  const { bounds, counts } = histogram;
  const used = counts.map((count, at) => count ? at : -1).filter(at => at >= 0);
  const first = used.length ? Math.max(0, used[0] - 1) : 0, last = used.length ? used[used.length - 1] : Math.min(7, counts.length - 1);
  const most = Math.max(1, ...counts), n = last - first + 1, width = 300 / n;
  const label = `${histogram.name}: ${used.map(at => `${counts[at]} up to ${at < bounds.length ? shown(bounds[at]) : "more"}`).join(", ") || "nothing yet"}`;
  const drawing = svg("svg", { class: "bars", viewBox: "0 0 300 100", role: "img", "aria-label": label },
    svg("line", { x1: 0, y1: 84, x2: 300, y2: 84 }));
  const each = Math.ceil(n / 6);
  for (let at = first; at <= last; at++) {
    const height = 78 * counts[at] / most, x = (at - first) * width;
    const bar = svg("rect", { x: x + width * .1, y: 84 - height, width: width * .8, height, rx: 1 });
    bar.append(svg("title", {}, `${counts[at]} up to ${at < bounds.length ? shown(bounds[at]) : "more"}`));
    drawing.append(bar);
    if ((at - first) % each === 0)
      drawing.append(svg("text", { x: x + width / 2, y: 96, "text-anchor": "middle" }, at < bounds.length ? shown(bounds[at]) : "more"));
  }
  return drawing;
}
