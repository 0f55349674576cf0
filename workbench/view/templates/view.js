// Keeps a page as the store is: when the server says that something has changed, the page is fetched again, and the
// parts that differ are replaced. What a person has opened, chosen or focused stays.
(() => {
const pulse = document.getElementById("pulse"), main = () => document.getElementById("main");
const header = () => document.querySelector("body > header"), data = () => document.getElementById("data");
const text = node => node ? node.innerHTML : "";
let seen = null, source = null, busy = false, waiting = false, version = "", took = 0;

const all = () => {
  const box = document.getElementById("all");
  if (box) box.onchange = () => document.querySelectorAll("#chosen input[name=run]").forEach(each => { each.checked = box.checked; });
};
const keep = () => {
  const focus = document.activeElement, path = focus && main().contains(focus) && focus !== main() ? focus.id ? `#${CSS.escape(focus.id)}` : focus.getAttribute("href") ? `a[href="${CSS.escape(focus.getAttribute("href"))}"]` : focus.value ? `[value="${CSS.escape(focus.value)}"]` : "" : "";
  const open = [...document.querySelectorAll("details")].map(each => [each.id || each.querySelector("summary").textContent, each.open]);
  const values = [...main().querySelectorAll("input[id]:not([type=checkbox])")].map(each => [each.id, each.value]);
  const chosen = [...main().querySelectorAll("input[name=run]:checked")].map(each => each.value), at = scrollY;
  return () => {
    const states = new Map(open);
    for (const each of document.querySelectorAll("details")) { const key = each.id || each.querySelector("summary").textContent; if (states.has(key)) each.open = states.get(key); }
    for (const [id, value] of values) { const field = document.getElementById(id); if (field) field.value = value; }
    for (const each of main().querySelectorAll("input[name=run]")) each.checked = chosen.includes(each.value);
    scrollTo(0, at);
    if (path) main().querySelector(path)?.focus({preventScroll: true});
  };
};
const renew = async () => {
  if (busy) { waiting = true; return; }
  busy = true; waiting = false;
  const begun = performance.now();
  try {
    const answer = await fetch(location.pathname + location.search, {credentials: "same-origin"});
    if (answer.status === 403) { pulse.textContent = "the server was started again: open the address that it printed"; source?.close(); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = ["#main", "body > header", "#data", "#pulse"].map(each => text(page.querySelector(each)));
    if (seen && now.some((each, i) => each !== seen[i])) {
      if (text(page.querySelector("style")) !== text(document.querySelector("style"))) { location.reload(); return; }
      const restore = keep();
      const [inner, head, json, said] = now;
      main().innerHTML = inner;
      if (header()) header().innerHTML = head;
      if (data()) data().textContent = page.getElementById("data").textContent;
      pulse.textContent = page.getElementById("pulse").textContent;
      if (data() && typeof drawReport === "function") drawReport();
      all();
      restore();
      main().dispatchEvent(new CustomEvent("renewed"));
    }
    seen = now;
    if (Boolean(data()) !== Boolean(page.getElementById("data"))) location.reload();
  } catch { pulse.textContent = "the server does not answer"; }
  finally {
    took = performance.now() - begun;
    setTimeout(() => { busy = false; if (waiting) renew(); }, Math.max(500, 4 * took));
  }
};
const listen = () => {
  source = new EventSource("/events");
  source.onmessage = event => { if (event.data !== version || seen === null) { version = event.data; renew(); } };
};
// A page that nobody looks at does not listen: a browser has few connections to one server.
document.addEventListener("visibilitychange", () => { if (document.hidden) source?.close(); else listen(); });
all();
if (!document.hidden) listen();
})();
