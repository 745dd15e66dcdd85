// Texts whose contrast with what is behind them is below arguments[0] (WCAG 2).
const parse = text => { const n = text.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
  return .2126 * x + .7152 * y + .0722 * z; };
const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
const behind = e => { const layers = []; for (let at = e; at; at = at.parentElement) {
    const c = parse(getComputedStyle(at).backgroundColor); if (c[3]) layers.push(c); if (c[3] === 1) break; }
  let colour = [255, 255, 255]; for (const layer of layers.reverse()) colour = over(layer, colour); return colour; };
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const e = node.parentElement;
  if (!node.data.trim() || !e.getClientRects().length || e.closest("noscript")) continue;
  const style = getComputedStyle(e);
  const ink = e.closest("svg") ? parse(style.fill) : parse(style.color);
  const under = behind(e), [a, b] = [light(over(ink, under)), light(under)];
  const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (contrast < arguments[0]) found.push(`${contrast.toFixed(2)}: ${node.data.trim().slice(0, 40)} <${e.tagName} ${e.className}>`);
}
return found;
