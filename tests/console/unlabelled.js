// What of the page has no name for who cannot see it.
const name = e => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(" ")
    .map(id => document.getElementById(id)?.textContent || "").join("") || [...(e.labels || [])].map(l => l.textContent).join("")
    || (["INPUT", "SELECT", "TEXTAREA"].includes(e.tagName) ? "" : e.textContent) || e.getAttribute("alt") || "").trim();
const found = [];
for (const e of document.querySelectorAll("a, button, input, select, textarea, dialog, [role=img], [role=tree], [role=treeitem], [role=region], nav"))
  if (e.getClientRects().length && !name(e)) found.push(e.outerHTML.slice(0, 120));
for (const e of document.querySelectorAll("img:not([alt])")) found.push(e.outerHTML);
if (document.querySelectorAll("main h1").length !== 1) found.push("main has " + document.querySelectorAll("main h1").length + " h1");
if (!document.documentElement.lang) found.push("html has no lang");
const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
for (const id of new Set(ids)) if (ids.filter(one => one === id).length > 1) found.push("id twice: " + id);
return found;
