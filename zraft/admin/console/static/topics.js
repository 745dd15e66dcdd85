// Topics with their partitions, records and consumers.

import { bytes, bytesOf, h, hexDump, moment, number, replace, span, table, textOf } from "./dom.js";
import { get } from "./server.js";

const ends = new Map();   // group -> [ms, end], for the rate
let records = null;       // { topic, number, group, offset, page, error }

function rate(partition) {
  const here = partition.here;
  if (!here) return null;
  const now = performance.now(), before = ends.get(partition.group);
  if (!before || now - before.at > 30_000 || now - before.at < 500) {
    ends.set(partition.group, { at: now, end: here.end, rate: before?.rate ?? null });
    return before?.rate ?? null;
  }
  const found = Math.max(0, here.end - before.end) * 1000 / (now - before.at);
  ends.set(partition.group, { at: now, end: here.end, rate: found });
  return found;
}

const place = (pages, server) => {
  const page = pages.find(([number]) => number === server)?.[1];
  return page ? h("a", { href: `${page}#/topics`, "aria-label": `Console of server ${server}` }, `${server}`) : `${server}`;
};

function partitions(topic, pages) {
  return table(`Partitions of ${topic.name}`,
    [["Partition", true], ["Leader"], ["Servers"], ["In sync"], ["Offsets", true], ["Records / s", true], ["Stored", true], ["Oldest", true], ["Records"]],
    topic.partitions.map(one => {
      const here = one.here;
      return [`${one.number}`, here ? (here.leads ? "this server" : here.leader == null ? h("span", { class: "bad" }, "none") : place(pages, here.leader)) : place(pages, one.should_lead),
        one.servers.join(", "),
        here?.leads ? h("span", { class: here.behind.length ? "warn" : null }, here.behind.length ? `all but ${here.behind.join(", ")}` : "all") : "–",
        here ? `${number(here.first)} – ${number(here.end)}` : "–", number(rate(one)), bytes(here?.stored_bytes), span(here?.oldest_age_ms),
        here ? (here.problem ? h("span", { class: "bad" }, here.problem)
          : h("a", { href: `#/topics?topic=${encodeURIComponent(topic.name)}&partition=${one.number}&offset=${Math.max(here.first, here.end - 20)}`,
              "aria-label": `Records of ${topic.name}/${one.number}` }, "show"))
          : h("span", { class: "soft" }, "not here")];
    }));
}

const retention = topic => [topic.retention_bytes == null ? null : `at least ${bytes(topic.retention_bytes)}`,
  topic.retention_age_ms == null ? null : span(topic.retention_age_ms)].filter(Boolean).join(", ") || "everything";

function consumers(found) {
  return [
    found.consumers.length ? table(`Consumers of ${found.topic}`, [["Consumer"], ["Partition", true], ["Offset", true], ["End", true], ["Lag", true], ["Owners"]],
      found.consumers.map(one => [one.name, `${one.partition}`, number(one.offset), number(one.end), h("span", { class: one.lag ? "warn" : null }, number(one.lag)),
        one.owners == null ? "stores its offset" : one.owners.join(", ") || "nobody"])) : h("p", { class: "soft" }, "No consumers in the partitions led here."),
    found.elsewhere.length ? h("ul", {}, found.elsewhere.map(one => h("li", {}, `Partition ${one.partition}: ${one.why} `,
      one.page ? h("a", { href: `${one.page}#/topics?topic=${encodeURIComponent(found.topic)}` }, `ask server ${one.leader}`) : null))) : null,
    found.left_out ? h("p", { class: "warn" }, `${number(found.left_out)} more partitions were not asked.`) : null];
}

function value(base64, length) {
  if (base64 == null) return h("span", { class: "soft" }, "null");
  const data = bytesOf(base64), text = textOf(data);
  const cut = data.length < length ? ` … (${bytes(length)})` : "";
  return h("code", {}, (text ?? hexDump(data)) + cut);
}

async function load(topic, number, offset) {
  const partition = topic.partitions.find(one => one.number === number);
  if (!partition) return { topic: topic.name, number, error: "there is no such partition" };
  try { return { topic: topic.name, number, offset, page: await get("/console/records", { group: partition.group, offset }) }; }
  catch (error) { return { topic: topic.name, number, offset, error: error.message }; }
}

function viewer() {
  const { topic, number: at, offset, page, error } = records;
  const go = to => { location.hash = `#/topics?topic=${encodeURIComponent(topic)}&partition=${at}&offset=${Math.max(0, to)}`; };
  const input = h("input", { id: "offset", type: "number", min: "0", value: `${offset}` });
  return h("section", {}, h("h2", {}, `Records of ${topic}/${at}`),
    h("form", { class: "row", onsubmit: event => { event.preventDefault(); go(Number(input.value)); } },
      h("label", { for: "offset" }, "From offset", input), h("button", { type: "submit" }, "Show"),
      page ? [h("button", { type: "button", id: "earlier", onclick: () => go(Math.max(page.first, offset - 20)), disabled: offset <= page.first }, "Earlier"),
        h("button", { type: "button", id: "later", onclick: () => go(page.next), disabled: page.next >= page.end }, "Later"),
        h("span", { class: "soft" }, `offsets ${number(page.first)} to ${number(page.end)}`)] : null),
    error ? h("p", { class: "bad" }, error) : !page.records.length ? h("p", { class: "soft" }, "No records from here on.")
      : table(`Records of ${topic}/${at} from offset ${offset}`, [["Offset", true], ["Time"], ["Key"], ["Value"], ["Headers"]],
        page.records.map(one => [number(one.offset), moment(one.timestamp), value(one.key, one.key_length), value(one.value, one.value_length),
          one.headers.map(([name, of]) => `${name}=${textOf(bytesOf(of)) ?? "…"}`).join(", ") || "–"])));
}

export async function show(main, parameters) {
  const found = await get("/console/topics"), chosen = parameters.get("topic"), part = parameters.get("partition");
  const topic = found.topics.find(one => one.name === chosen);
  if (!topic) {
    records = null;
    replace(main, h("h1", {}, "Topics"),
      h("section", {}, found.topics.length ? table("Topics", [["Topic"], ["Partitions", true], ["Led here", true], ["Records here", true], ["Stored here", true], ["Kept"]],
        found.topics.map(one => {
          const here = one.partitions.map(each => each.here).filter(Boolean);
          return [h("a", { href: `#/topics?topic=${encodeURIComponent(one.name)}` }, one.name), number(one.partitions.length + one.partitions_left_out),
            number(here.filter(each => each.leads).length), number(here.reduce((sum, each) => sum + each.end - each.first, 0)),
            bytes(here.reduce((sum, each) => sum + each.stored_bytes, 0)), retention(one)];
        })) : h("p", {}, "There are no topics that you may see."),
      found.left_out ? h("p", { class: "warn" }, `${number(found.left_out)} more are not listed.`) : null));
    return;
  }
  const offset = Number(parameters.get("offset") || 0);
  records = part == null ? null : await load(topic, Number(part), offset);
  const who = await get("/console/consumers", { topic: topic.name }).catch(error => ({ topic: topic.name, consumers: [], elsewhere: [{ partition: 0, why: error.message }], left_out: 0 }));
  if (parameters !== current()) return;
  replace(main, h("p", {}, h("a", { href: "#/topics" }, "All topics")), h("h1", {}, topic.name),
    h("div", { class: "grid" },
      h("section", { class: "wide" }, h("h2", {}, "Partitions"), h("p", { class: "soft" }, `Keeps ${retention(topic)}.`), partitions(topic, found.pages),
        topic.partitions_left_out ? h("p", { class: "warn" }, `${number(topic.partitions_left_out)} more are not listed.`) : null),
      h("section", { class: "wide" }, h("h2", {}, "Consumers"), consumers(who)),
      records ? h("div", { class: "wide" }, viewer()) : null));
}

let current = () => null;
export const route = get => { current = get; };
