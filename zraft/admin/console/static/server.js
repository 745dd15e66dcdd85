// What is asked of the server, and what it tells by itself.

export class Refused extends Error {
  constructor(status, refusal) { super(refusal.error); this.status = status; this.code = refusal.code; }
}

export let caller = { may_look: false, user: null, csrf: null, has_users: false, reach: "off", server: 0 };

async function told(answer) {
  let value;
  try { value = await answer.json(); } catch { value = { code: "failed", error: `the server answered ${answer.status}` }; }
  if (!answer.ok || value.error) throw new Refused(answer.status, value);
  return value;
}

const query = parameters => parameters ? "?" + new URLSearchParams(parameters) : "";

export async function get(path, parameters) {
  return told(await fetch(path + query(parameters), { cache: "no-store" }));
}

export async function change(path, parameters, body) {
  const answer = await fetch(path + query(parameters),
    { method: "POST", body: body ?? new Uint8Array(), headers: { "X-Zraft-Csrf": caller.csrf ?? "sign-in" } });
  return told(answer);
}

export async function askWhoIAm() { caller = await get("/console/caller"); return caller; }

export async function signIn(offer) {
  const answer = await fetch("/console/sign-in",
    { method: "POST", body: JSON.stringify(offer), headers: { "X-Zraft-Csrf": "sign-in" } });
  await told(answer);
  return askWhoIAm();
}

export async function signOut() { await change("/console/sign-out"); return askWhoIAm(); }

// The overview as it comes, and null when the server does not answer. Nothing is asked while nobody looks at the page.
export function follow(onOverview) {
  let source = null;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource("/console/events");
    source.addEventListener("overview", event => onOverview(JSON.parse(event.data)));
    source.onerror = () => {
      onOverview(null);
      if (source && source.readyState === EventSource.CLOSED) { close(); setTimeout(open, 5000); }
    };
  };
  const close = () => { source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
  open();
}
