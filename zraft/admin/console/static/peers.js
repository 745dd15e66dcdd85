// Fleets of peers (onyxlog), by what their groups publish: who is alive and how far, who runs which task, and the last audit.

import { bytes, h, moment, number, pairs, replace, span, table } from "./dom.js";
import { get } from "./server.js";

const link = (path, text) => h("a", { href: `#/tree?path=${encodeURIComponent(path)}` }, text);
const more = (count, what) => count ? h("p", { class: "soft" }, `${number(count)} more ${what} are not shown.`) : null;
const share = (part, whole) => whole ? `${Math.floor(100 * part / whole)} %` : "–";

// A live group is heard of twice in its timeout.
const heard = one => one.silent_ms == null ? "–"
  : h("span", { class: one.silent_ms > one.timeout_ms * 2 / 3 ? "bad" : null }, `${span(one.silent_ms)} ago`);

function groups(fleet) {
  return [table(`Groups of ${fleet.tenancy} that are alive`,
    [["Group"], ["Heard of"], ["Reported"], ["Busy peers", true], ["Position", true], ["Behind", true]],
    fleet.groups.map(one => [one.group, heard(one), one.reported_ms == null ? "–" : `${span(one.reported_ms)} ago`,
      one.peers == null ? "–" : `${one.busy} of ${one.peers}`, number(one.position), number(one.behind)])),
    more(fleet.groups_left_out, "groups")];
}

function jobs(fleet) {
  return [table(`Jobs of ${fleet.tenancy}`, [["Job"], ["State"], ["Since"]],
    fleet.jobs.map(job => [link(`/onyx/${fleet.tenancy}/jobs/${job.job}`, job.job),
      h("span", { class: { killed: "bad", waiting: "warn", running: "good" }[job.state] ?? null }, job.state),
      job.since_ms != null ? moment(job.since_ms) : job.since != null ? `entry ${job.since}` : "–"])),
    more(fleet.jobs_left_out, "jobs")];
}

function progress(job, task) {
  if (task.total == null) return "–";
  return h("span", {}, h("progress", { max: Math.max(1, task.total), value: task.total ? task.done : 1, "aria-label": `Progress of ${task.task} of ${job.job}` }),
    ` ${task.total ? share(task.done, task.total) : "100 %"}`);
}

function tasks(fleet) {
  const running = fleet.jobs.flatMap(job => job.tasks.map(task => [job, task]));
  if (!running.length) return null;
  return [table(`Tasks of ${fleet.tenancy}`,
    [["Job"], ["Task"], ["Since"], ["Segments", true], ["Rate / s", true], ["Read"], ["Left"]],
    running.map(([job, task]) => [job.job, task.task, moment(task.since_ms), number(task.segments), number(task.per_s),
      progress(job, task), task.left_ms == null ? "–" : span(task.left_ms)])),
  table(`Who runs the tasks of ${fleet.tenancy}`, [["Peer"], ["Job"], ["Task"], ["Slot", true], ["Since"], ["Segments", true]],
    running.flatMap(([job, task]) => task.workers.map(one =>
      [one.peer, job.job, task.task, number(one.slot), moment(one.since_ms), number(one.segments)])))];
}

function gossip(fleet) {
  const g = fleet.gossip;
  if (!g) return null;
  return [h("h3", {}, "Gossip, all groups together"), pairs([
    ["Entries from peers", `${number(g.from_peers)} (${share(g.from_peers, g.from_peers + g.from_servers)} of those that others wrote)`],
    ["Entries from servers", number(g.from_servers)], ["Redundant copies", number(g.redundant)],
    ["Received, sent", `${bytes(g.received_bytes)}, ${bytes(g.sent_bytes)}`]])];
}

function audit(fleet) {
  const a = fleet.audit;
  if (!a) return h("p", { class: "soft" }, "No audit is published; ", h("code", {}, "onyxlog audit --publish"), " does it.");
  const tone = { holds: "good", broken: "bad", "no data": "warn" };
  return [h("h3", {}, "The last audit"), pairs([
    ["Verdict", h("span", { class: tone[a.verdict] ?? null }, a.verdict)], ["When", moment(a.at_ms)], ["Of", a.title],
    ["By release", a.version], ["Took", span(a.seconds * 1000)]]),
  table(`Rules of the last audit of ${fleet.tenancy}`, [["Rule"], ["Verdict"], ["Violations", true], ["What it is about"]],
    a.rules.map(one => [one.rule, h("span", { class: tone[one.verdict] ?? null }, one.verdict), number(one.violations), one.title]))];
}

function section(fleet) {
  const root = `/onyx/${fleet.tenancy}`;
  return h("section", { class: "wide" }, h("h2", {}, fleet.tenancy),
    h("p", { class: "soft" }, fleet.end == null ? "There is no log that you may read; "
      : `The log ends before entry ${number(fleet.end)}; ${number(fleet.entries)} entries are there: `,
      link(`${root}/log`, "open the log"), "; ", link(root, "all znodes"), "."),
    fleet.unreadable.map(text => h("p", { class: "warn" }, text)),
    fleet.groups.length ? groups(fleet) : h("p", {}, "No group is alive."),
    fleet.jobs.length ? jobs(fleet) : h("p", {}, "There are no jobs."),
    tasks(fleet), gossip(fleet), audit(fleet));
}

export async function show(main) {
  const found = await get("/console/fleets");
  replace(main, h("h1", {}, "Peers"),
    h("p", { class: "soft" }, "What groups of peers report of themselves, every few seconds while they work. Times are UTC. Why a job waits, and whether replicas agree: ",
      h("code", {}, "onyxlog status"), "."),
    h("div", { class: "grid" }, found.fleets.length ? found.fleets.map(section) : h("section", {}, h("p", {}, "There are no fleets below /onyx."))),
    more(found.left_out, "fleets"));
}
