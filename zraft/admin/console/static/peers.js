// Fleets of peers (onyxlog), as far as their znodes tell: groups that are alive, jobs, how far replicas have published.

import { bytesOf, h, number, replace, table, textOf } from "./dom.js";
import { get } from "./server.js";

const ROOT = "/onyx";

async function names(path) {
  try { return await get("/console/children", { path }); }
  catch (error) { if (error.code === "NO_NODE") return { children: [], total: 0, after: null }; throw error; }
}

const link = (path, text) => h("a", { href: `#/tree?path=${encodeURIComponent(path)}` }, text);

async function tenancy(name) {
  const at = `${ROOT}/${name}`;
  const [groups, jobs, log, state] = await Promise.all([names(`${at}/pulse`), names(`${at}/jobs`), names(`${at}/log`), names(`${at}/state`)]);
  const more = of => of.after == null ? "" : ` (the first ${of.children.length} of ${number(of.total)})`;
  return h("section", { class: "wide" }, h("h2", {}, name),
    h("p", { class: "soft" }, `${number(log.total)} entries in the log; `, link(`${at}/log`, "open it"), "; ", link(at, "all znodes"), "."),
    groups.total ? table(`Groups of ${name} that are alive${more(groups)}`, [["Group"], ["Session"]],
      groups.children.map(one => [one.name, one.ephemeral ? "lives" : "–"])) : h("p", {}, "No group is alive."),
    jobs.total ? table(`Jobs of ${name}${more(jobs)}`, [["Job"], ["Specification", true]],
      jobs.children.map(one => [link(`${at}/jobs/${one.name}`, one.name), one.length == null ? "–" : `${number(one.length)} B`])) : h("p", {}, "There are no jobs."),
    state.total ? h("p", {}, "What the runtime keeps: ", state.children.slice(0, 50).map(one => [link(`${at}/state/${one.name}`, one.name), " "])) : null);
}

export async function show(main) {
  const found = await names(ROOT);
  const sections = await Promise.all(found.children.slice(0, 8).map(one => tenancy(one.name)));
  replace(main, h("h1", {}, "Peers"),
    h("p", { class: "soft" }, "What the znodes of fleets tell. Tasks, progress and replicas' positions follow from playing a fleet's log: ",
      h("code", {}, "onyxlog status"), " does that; the last audit is in the report that ", h("code", {}, "onyxlog audit"), " wrote."),
    h("div", { class: "grid" }, sections.length ? sections : h("section", {}, h("p", {}, "There are no fleets below /onyx."))));
}
