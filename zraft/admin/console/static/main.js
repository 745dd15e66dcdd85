// The frame: which page is shown, who has signed in, and whether the server answers.

import { ask } from "./dialogs.js";
import { h, say } from "./dom.js";
import * as overview from "./overview.js";
import * as peers from "./peers.js";
import { askWhoIAm, caller, follow, signIn, signOut } from "./server.js";
import { showSessions, showWatches } from "./sessions.js";
import * as topics from "./topics.js";
import * as tree from "./tree.js";

const main = document.getElementById("content");
const PAGES = {
  overview: { title: "Overview", show: () => overview.show(main, last), tick: () => overview.show(main, last) },
  tree: { title: "Tree", data: true, show: parameters => tree.show(main, parameters), tick: () => tree.tick(main) },
  sessions: { title: "Sessions", show: () => showSessions(main) },
  watches: { title: "Watches", show: () => showWatches(main) },
  topics: { title: "Topics", data: true, show: parameters => topics.show(main, parameters) },
  peers: { title: "Peers", data: true, show: () => peers.show(main) },
};
let last = null, page = null, parameters = null, ticks = 0, busy = false, since = null;
topics.route(() => parameters);

function cannotLook() {
  main.replaceChildren(h("h1", {}, page.title), h("section", {}, h("p", { id: "not-here" },
    "This server shows data only to browsers on its own machine. Use a tunnel, such as ", h("code", {}, "ssh -L 2281:localhost:2281 HOST"),
    `, or let its operator set admin.console = everywhere (it is ${caller.reach}).`)));
}

async function draw(how) {
  if (busy) return;
  busy = true;
  const shown = page;
  try {
    if (page.data && !caller.may_look) cannotLook();
    else await (how === "tick" && page.tick ? page.tick() : page.show(parameters));
  } catch (error) {
    if (how !== "tick" && shown === page)
      main.replaceChildren(h("h1", {}, page.title), h("section", {}, h("p", { class: "bad", id: "refused" }, error.message)));
  } finally { busy = false; }
  if (shown !== page) await draw("show");
}

async function route() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  parameters = new URLSearchParams(query ?? "");
  const next = PAGES[name] ?? PAGES.overview;
  const moved = next !== page;
  page = next;
  for (const link of document.querySelectorAll("nav a"))
    if (link.getAttribute("href") === `#/${name || "overview"}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  head();
  if (moved) main.replaceChildren(h("h1", {}, page.title), h("p", { class: "soft" }, "…"));
  while (busy) await new Promise(resolve => setTimeout(resolve, 20));
  await draw("show");
}

function head() {
  const mode = document.getElementById("mode"), gone = since != null;
  document.getElementById("server").textContent = last?.server ?? caller.server;
  mode.textContent = gone ? "no answer" : last ? last.ready ? last.mode ?? "starting" : "not ready" : "…";
  mode.className = "badge " + (gone || (last && !last.ready) ? "bad" : last ? "good" : "");
  document.title = `zraft ${last?.server ?? ""}: ${gone ? "no answer" : page?.title ?? ""}`;
}

function banner() {
  const place = document.getElementById("gone");
  place.hidden = since == null;
  if (since == null) return;
  const others = (last?.members ?? []).filter(one => one.page && !one.is_me);
  place.replaceChildren(`Server ${last?.server ?? caller.server} has not answered since ${since.toLocaleTimeString("en-GB")}. What is shown is from before. `,
    ...others.flatMap(one => [h("a", { href: one.page + location.hash }, `Open server ${one.server}`), " "]));
}

function onOverview(found) {
  if (found) {
    const back = since != null;
    last = found; since = null; ticks++;
    overview.note(found);
    if (back) askWhoIAm().then(who).catch(() => {});
  } else since ??= new Date();
  head(); banner();
  if (page === PAGES.overview || (found && ticks % 2 === 0)) draw("tick");
}

function who() {
  const place = document.getElementById("who");
  if (caller.user) {
    place.replaceChildren(h("span", {}, caller.user === "token" ? "signed in" : caller.user),
      h("button", { type: "button", id: "sign-out", onclick: () => signOut().then(changed, error => say(error.message)) }, "Sign out"));
  } else if (caller.may_look) {
    place.replaceChildren(h("button", { type: "button", class: "main", id: "sign-in", onclick: askToSignIn }, "Sign in"));
  } else place.replaceChildren();
}

function changed() { who(); draw("show"); }

async function askToSignIn() {
  const values = caller.has_users
    ? await ask("Sign in", [{ name: "user", label: "User", required: true, autocomplete: "username" },
        { name: "password", label: "Password", type: "password", required: true, autocomplete: "current-password" }], "Sign in")
    : await ask("Sign in", [{ name: "token", label: "Token (zraft dev prints a link with it; servers with auth.sasl_users_file ask for users)", required: true }], "Sign in");
  if (!values) return;
  try { await signIn(values); changed(); } catch (error) { say(error.message); }
}

async function begin() {
  await askWhoIAm().catch(() => {});
  const token = location.hash.match(/^#token=([\w-]+)/)?.[1];
  if (token) {
    history.replaceState(null, "", location.pathname + "#/overview");
    await signIn({ token }).catch(error => say(error.message));
  }
  who();
  window.addEventListener("hashchange", () => { if (location.hash !== "#content") route(); });
  document.querySelector(".skip").addEventListener("click", event => { event.preventDefault(); main.focus(); });
  await route();
  follow(onOverview);
}

begin();
