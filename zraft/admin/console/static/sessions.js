// Sessions with what they hold, and watches.

import { h, number, replace, span, table } from "./dom.js";
import { get } from "./server.js";

const link = path => h("a", { href: `#/tree?path=${encodeURIComponent(path)}` }, path);

function held(paths, count) {
  if (!count) return "–";
  const list = h("ul", {}, paths.map(path => h("li", { class: "path" }, link(path))));
  if (count > paths.length) list.append(h("li", {}, `and ${number(count - paths.length)} more`));
  return h("details", {}, h("summary", {}, number(count)), list);
}

const unfolded = main => new Set([...main.querySelectorAll("details[open]")].map(one => one.dataset.key));

function keep(main, before) {
  main.querySelectorAll("details").forEach((one, at) => { one.dataset.key = `${one.closest("tr")?.firstChild.textContent}-${at % 2}`; });
  main.querySelectorAll("details").forEach(one => { one.open = before.has(one.dataset.key); });
}

export async function showSessions(main) {
  const found = await get("/console/sessions"), before = unfolded(main);
  replace(main, h("h1", {}, "Sessions"),
    h("p", { class: "soft" }, "All sessions of the cluster. Connections and watches are known of those at this server."),
    h("section", {}, table("Sessions and what they hold", [["Session"], ["Timeout", true], ["Connected from"], ["Last request"], ["Ephemerals"], ["Watches here"]],
      found.sessions.map(one => [h("code", {}, one.session), span(one.timeout_ms), one.address ?? h("span", { class: "soft" }, "another server"), one.last_operation,
        held(one.ephemerals, one.ephemerals_count), held(one.watches, one.watches_count)])),
    found.sessions.length ? null : h("p", {}, "There are no sessions."),
    found.left_out ? h("p", { class: "warn" }, `${number(found.left_out)} more are not listed.`) : null));
  keep(main, before);
}

export async function showWatches(main) {
  const found = await get("/console/watches");
  replace(main, h("h1", {}, "Watches"),
    h("p", { class: "soft" }, "Watches of clients of this server. Others have theirs."),
    h("section", {}, table("Watched paths", [["Path"], ["Watches", true], ["Sessions"]],
      found.watches.map(one => [link(one.path), number(one.count), one.sessions.join(" ") + (one.count > one.sessions.length ? " …" : "")])),
    found.watches.length ? null : h("p", {}, "Nobody watches anything here."),
    found.left_out ? h("p", { class: "warn" }, `${number(found.left_out)} more are not listed.`) : null));
}
