// The first page: one server, and its cluster as it sees it.

import { bars, History, line } from "./chart.js";
import { bytes, h, moment, number, pairs, replace, span, table } from "./dom.js";

const RATES = [["requests", "Requests"], ["writes", "Writes"], ["reads", "Reads"], ["records", "Topic records"], ["events", "Watch events"]];
const histories = Object.fromEntries(RATES.map(([name]) => [name, new History()]));
let before = null;

// Is told of every overview, whichever page is shown, so that the lines have no gaps.
export function note(overview) {
  if (before && overview.at_ms > before.at_ms && overview.server === before.server)
    for (const [name] of RATES)
      histories[name].add(Math.max(0, overview.counts[name] - before.counts[name]) * 1000 / (overview.at_ms - before.at_ms));
  before = overview;
}

function members(o) {
  const leads = o.members.some(one => one.is_me && one.leads);
  const rows = o.members.map(one => [
    [`${one.server}`, one.is_me ? " (this server)" : ""].join(""), one.address,
    one.snapshot_percent == null ? one.role : `${one.role}, gets a snapshot: ${one.snapshot_percent} %`,
    leads && !one.is_me ? number(one.lag_entries) : "–", leads && !one.is_me ? bytes(one.inflight_bytes) : "–",
    leads && !one.is_me ? h("span", { class: one.silent_ms >= 2000 ? "bad" : null }, span(one.silent_ms)) : "–",
    one.page ? h("a", { href: one.page, "aria-label": `Console of server ${one.server}` }, "open") : "–"]);
  return h("section", { class: "wide" }, h("h2", {}, "Members"),
    leads || !o.leader_page ? null : h("p", {}, "This server follows. How far the others are, the leader knows: ",
      h("a", { href: o.leader_page, id: "leader-link" }, "open the leader's page"), "."),
    table("The servers of the cluster", [["Server"], ["Address"], ["Role"], ["Behind", true], ["In flight", true], ["Silent for", true], ["Console"]], rows));
}

export function show(main, o) {
  if (!o) { replace(main, h("h1", {}, "Overview"), h("p", { class: "soft" }, "Waiting for the server …")); return; }
  const raft = o.raft ?? {}, tree = o.tree ?? {}, c = o.clients, t = o.topics, d = o.disk;
  replace(main,
    h("h1", {}, `Server ${o.server}`),
    h("p", { class: "soft" }, `${o.address} · ${o.version}` + (o.cluster ? ` · cluster ${o.cluster.slice(0, 12)}` : "")),
    o.alarms.length
      ? h("ul", { class: "alarms", "aria-label": "Alarms" }, o.alarms.map(one => h("li", { class: one.bad ? "bad" : "warn" }, one.text)))
      : h("p", { class: "good", id: "fine" }, "No alarms."),
    h("div", { class: "grid rates" },
      RATES.map(([name, title]) => {
        const { values } = histories[name], now = values.at(-1);
        return h("section", {}, h("h2", {}, `${title} / s`), h("div", { class: "number" }, number(now)),
          line(values, `${title} per second in the last two minutes, now ${number(now)}`));
      })),
    h("div", { class: "grid" },
      members(o),
      o.times.map(one => h("section", {}, h("h2", {}, one.name), h("p", { class: "soft" }, one.about), bars(one),
        pairs([["mean", `${number(one.mean)} ms`], ["p50", `${number(one.p50)} ms`], ["p99", `${number(one.p99)} ms`], ["max", `${number(one.max)} ms`]]))),
      h("section", {}, h("h2", {}, "Tree"), pairs([["Znodes", number(tree.znodes)], ["Ephemerals", number(tree.ephemerals)],
        ["Paths and data", bytes(tree.data_bytes)], ["Sessions", number(tree.sessions)], ["Watches here", number(tree.watches)], ["zxid", tree.zxid]])),
      h("section", {}, h("h2", {}, "Clients of this server"), pairs([["Connections", number(c.connections)], ["Sessions", number(c.sessions_attached)],
        ["Writes outstanding", bytes(c.outstanding_bytes)], ["Answers not taken", bytes(c.output_bytes)],
        ["Received", bytes(c.bytes_received_total)], ["Sent", bytes(c.bytes_sent_total)], ["Sessions expired", number(c.sessions_expired_total)]])),
      h("section", {}, h("h2", {}, "Topics"), pairs([["Topics", number(t.topics)], ["Partitions", number(t.partitions)], ["Moving", number(t.partitions_moving)],
        ["Missing", number(t.partitions_missing)], ["Producers", number(t.producers)]])),
      h("section", {}, h("h2", {}, "Raft"), pairs([["Term", number(raft.term)], ["Leader", raft.leader ?? "none"], ["Last index", number(raft.last_index)],
        ["Committed", number(raft.commit_index)], ["Applied", number(raft.applied_index)], ["Leader changes", number(raft.leader_changes_total)]])),
      h("section", {}, h("h2", {}, "Disk"), pairs([["Log", bytes(d.log_bytes)], ["Snapshots", bytes(d.snapshots_bytes)],
        ["Free", `${bytes(d.free_bytes)} of ${bytes(d.size_bytes)}`], ["Last snapshot", d.snapshot_at_ms == null ? "none" : moment(d.snapshot_at_ms)]]))));
}
