// The tree browser: children in pages, data as text, JSON or hex, and changes for who has signed in.

import { bytes, bytesOf, h, hexDump, moment, number, pairs, replace, say, span, table, textOf } from "./dom.js";
import { ask, confirm } from "./dialogs.js";
import { caller, change, get } from "./server.js";

const open = new Map();       // path -> { children, after, total } of what is unfolded
let selected = "/", form = "text", node = null, failure = null, shownFor = null;

const join = (path, name) => path === "/" ? `/${name}` : `${path}/${name}`;
const parentOf = path => path.slice(0, path.lastIndexOf("/")) || "/";
const address = path => `#/tree?path=${encodeURIComponent(path)}`;

async function unfold(path) {
  const page = await get("/console/children", { path });
  open.set(path, page);
}

async function more(path) {
  const known = open.get(path), page = await get("/console/children", { path, after: known.after });
  open.set(path, { ...page, children: [...known.children, ...page.children] });
}

async function look(path) {
  selected = path;
  try { node = await get("/console/node", { path }); failure = null; } catch (error) { node = null; failure = error; }
}

// -- the tree itself

function item(path, name, count, ephemeral) {
  const unfolded = open.get(path), leaf = count === 0;
  const line = h("div", { class: "item" }, h("span", { class: "mark", "aria-hidden": "true" }, leaf ? "·" : unfolded ? "▾" : "▸"),
    h("span", {}, name), ephemeral ? h("span", { class: "soft" }, "ephemeral") : null,
    count ? h("span", { class: "soft" }, number(count)) : null);
  const one = h("li", { role: "treeitem", id: `node-${path}`, "data-path": path, tabindex: path === selected ? "0" : "-1",
    "aria-selected": String(path === selected), "aria-expanded": leaf ? null : String(Boolean(unfolded)), "aria-label": name }, line);
  if (unfolded && !leaf) {
    const inner = unfolded.children.map(child => item(join(path, child.name), child.name, child.children, child.ephemeral));
    if (unfolded.after != null) {
      const left = unfolded.total - unfolded.children.length;
      inner.push(h("li", { role: "treeitem", id: `more-${path}`, "data-more": path, tabindex: "-1", "aria-selected": "false" },
        h("div", { class: "item" }, h("span", { class: "mark", "aria-hidden": "true" }, "…"), `${number(left)} more`)));
    }
    one.append(h("ul", { role: "group" }, inner));
  }
  return one;
}

function visible(tree) { return [...tree.querySelectorAll('[role="treeitem"]')]; }

async function act(main, element) {
  if (element.dataset.more) {
    const known = open.get(element.dataset.more).children.length;
    await more(element.dataset.more);
    draw(main);
    const next = open.get(element.dataset.more).children[known];
    if (next) document.getElementById(`node-${join(element.dataset.more, next.name)}`)?.focus();
    return;
  }
  location.hash = address(element.dataset.path);
}

async function toggle(main, path) {
  if (open.has(path)) open.delete(path); else await unfold(path).catch(error => say(error.message));
  draw(main);
  document.getElementById(`node-${path}`)?.focus();
}

function keys(main, event) {
  const at = event.target.closest('[role="treeitem"]');
  if (!at) return;
  const all = visible(event.currentTarget), place = all.indexOf(at), path = at.dataset.path;
  const go = element => { if (element) { at.tabIndex = -1; element.tabIndex = 0; element.focus(); } };
  switch (event.key) {
    case "ArrowDown": go(all[place + 1]); break;
    case "ArrowUp": go(all[place - 1]); break;
    case "Home": go(all[0]); break;
    case "End": go(all[all.length - 1]); break;
    case "ArrowRight":
      if (path && at.getAttribute("aria-expanded") === "false") toggle(main, path); else go(all[place + 1]);
      break;
    case "ArrowLeft":
      if (path && path !== "/" && at.getAttribute("aria-expanded") !== "true") go(document.getElementById(`node-${parentOf(path)}`));
      else if (path && open.has(path)) toggle(main, path);
      break;
    case "Enter": case " ": act(main, at); break;
    default: return;
  }
  event.preventDefault();
}

function pressed(main, event) {
  const at = event.target.closest('[role="treeitem"]');
  if (!at) return;
  if (event.target.classList.contains("mark") && at.hasAttribute("aria-expanded")) toggle(main, at.dataset.path);
  else act(main, at);
}

// -- one znode

function shownData() {
  const data = bytesOf(node.data);
  if (data === null) return h("p", { class: "soft" }, "This znode has no data (null).");
  if (!data.length) return h("p", { class: "soft" }, "The data are empty.");
  const text = textOf(data), cut = data.length < node.stat.dataLength;
  let body;
  if (form === "hex" || (text === null && form === "text")) body = hexDump(data);
  else if (form === "json") {
    try { body = text === null ? null : JSON.stringify(JSON.parse(text), null, 2); } catch { body = null; }
  } else body = text;
  return h("div", {},
    form === "text" && text === null ? h("p", { class: "soft" }, "These bytes are no UTF-8 text; here they are in hexadecimal.") : null,
    body === null ? h("p", { class: "soft" }, "These data are no JSON.") : h("pre", { id: "data", tabindex: "0", "aria-label": "Data" }, body),
    cut ? h("p", { class: "warn" }, `Only the first ${bytes(data.length)} of ${bytes(node.stat.dataLength)} are shown.`) : null);
}

const hexOf = data => [...data].map(one => one.toString(16).padStart(2, "0")).join(" ");

function parsed(text, as) {
  if (as === "text") return new TextEncoder().encode(text);
  const digits = text.replace(/\s+/g, "");
  if (digits.length % 2 || !/^[0-9a-f]*$/i.test(digits)) throw new Error("expected pairs of hexadecimal digits");
  return Uint8Array.from(digits.match(/../g) ?? [], pair => parseInt(pair, 16));
}

async function changed(main, done, then) {
  try {
    await done();
    await then();
  } catch (error) { say(error.message); }
  await refresh(main);
}

async function create(main) {
  const values = await ask(`Create a child of ${selected}`, [
    { name: "name", label: "Name", required: true },
    { name: "kind", label: "Kind", options: [["0", "persistent"], ["2", "persistent, numbered"], ["4", "container"]] },
    { name: "data", label: "Data (text)", long: true }], "Create …");
  if (!values) return;
  const path = join(selected, values.name), data = new TextEncoder().encode(values.data);
  if (!await confirm("Create this znode?", `${path}, with ${number(data.length)} bytes, open to everybody (world:anyone).`, "Create")) return;
  await changed(main, async () => {
    const made = await change("/console/create", { path, kind: values.kind }, data);
    say(`${made.path} is created`);
    return made;
  }, () => unfold(selected));
}

async function set(main) {
  const data = bytesOf(node.data) ?? new Uint8Array(), text = textOf(data), as = text === null ? "hex" : "text";
  const path = selected, version = node.stat.version;
  const values = await ask(`Data of ${path}`, [{ name: "data", label: as === "text" ? "Text" : "Hexadecimal", long: true, value: as === "text" ? text : hexOf(data) }], "Set …");
  if (!values) return;
  let next;
  try { next = parsed(values.data, as); } catch (error) { say(error.message); return; }
  if (!await confirm("Replace the data?", `${path}: ${number(next.length)} bytes in the place of ${number(data.length)}, if its version is still ${version}.`, "Set")) return;
  await changed(main, () => change("/console/set", { path, version }, next), async () => say(`${path} is set`));
}

async function remove(main) {
  const path = selected, version = node.stat.version;
  if (!await confirm("Delete this znode?", `${path}, if the version of its data is still ${version}. This cannot be undone.`, "Delete", true)) return;
  await changed(main, () => change("/console/delete", { path, version }), async () => {
    say(`${path} is deleted`);
    location.hash = address(parentOf(path));
  });
}

function detail(main) {
  if (failure) return h("section", {}, h("h2", { class: "crumbs" }, selected), h("p", { class: "bad", id: "refused" }, failure.message));
  if (!node) return h("section", {}, h("p", { class: "soft" }, "…"));
  const s = node.stat, may = Boolean(caller.user), whole = (bytesOf(node.data)?.length ?? 0) === s.dataLength;
  const forms = [["text", "Text"], ["json", "JSON"], ["hex", "Hex"]];
  return h("section", {}, h("h2", { class: "crumbs", id: "path" }, node.path),
    h("div", { class: "row", role: "group", "aria-label": "Show data as" }, forms.map(([name, title]) =>
      h("button", { type: "button", id: `as-${name}`, "aria-pressed": String(form === name), onclick: () => { form = name; draw(main); } }, title))),
    shownData(),
    h("div", { class: "row" },
      h("button", { type: "button", id: "create", disabled: !may, onclick: () => create(main) }, "Create a child …"),
      h("button", { type: "button", id: "set", disabled: !may || !whole, onclick: () => set(main) }, "Set data …"),
      h("button", { type: "button", id: "delete", class: "danger", disabled: !may || node.path === "/", onclick: () => remove(main) }, "Delete …"),
      may ? null : h("span", { class: "soft" }, "Sign in to change znodes.")),
    h("h2", {}, "Stat"),
    pairs([["Version of data", number(s.version)], ["of children", number(s.cversion)], ["of ACL", number(s.aversion)], ["Length", bytes(s.dataLength)],
      ["Children", number(s.numChildren)], ["Created", `${moment(s.ctime)} (${s.czxid})`], ["Modified", `${moment(s.mtime)} (${s.mzxid})`],
      ["Children changed", s.pzxid], ["Owner", s.ephemeralOwner ? h("a", { href: "#/sessions" }, s.ephemeralOwner) : "none: persistent"]]),
    h("h2", {}, "ACL"),
    node.acl ? table("Who may do what", [["Scheme"], ["Id"], ["Rights"]], node.acl.map(one => [one.scheme, one.id, one.rights]))
      : h("p", { class: "soft" }, "You may not see the ACL."));
}

function draw(main) {
  const root = item("/", "/", node && selected === "/" ? node.stat.numChildren : null, false);
  if (!root.querySelector('[tabindex="0"]') && root.tabIndex < 0) root.tabIndex = 0;
  const scrolled = main.querySelector(".tree")?.scrollTop ?? 0;
  replace(main, h("h1", {}, "Tree"), h("div", { class: "split" },
    h("section", {}, h("div", { class: "tree" },
      h("ul", { role: "tree", "aria-label": "Znodes", onkeydown: event => keys(main, event), onclick: event => pressed(main, event) }, root))),
    detail(main)));
  main.querySelector(".tree").scrollTop = scrolled;
}

async function refresh(main) {
  for (const path of [...open.keys()]) {
    if (open.get(path).children.length > 1000) continue;  // long lists stay as they were unfolded
    try {
      const length = open.get(path).children.length;
      await unfold(path);
      while (open.get(path).after != null && open.get(path).children.length < length) await more(path);
    } catch { open.delete(path); }
  }
  await look(selected);
  draw(main);
}

export async function show(main, parameters) {
  const path = parameters.get("path") || "/";
  await look(path);
  for (let at = path; ; at = parentOf(at)) {
    if ((at === path ? at === "/" || node?.stat.numChildren : true) && !open.has(at)) await unfold(at).catch(() => {});
    if (at === "/") break;
  }
  draw(main);
  shownFor = path;
}

export async function tick(main) {
  if (document.querySelector("dialog[open]")) return;
  await look(selected);
  for (const path of open.keys()) if (open.get(path).total <= 200) await unfold(path).catch(() => open.delete(path));
  if (shownFor === selected) draw(main);
}
