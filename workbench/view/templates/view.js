// Keeps a page as the store is: when the server says that something has changed, the page is fetched again, and the
// parts that differ are replaced. What a person has opened, chosen or focused stays.
(() => {
const pulse = document.getElementById("pulse"), main = () => document.getElementById("main");
const header = () => document.querySelector("body > header"), data = () => document.getElementById("data");
const RESTARTED = "the server was started again: open the address that it printed";
const text = node => node ? node.innerHTML : "";
let seen = null, source = null, telling = 0, busy = false, waiting = false, version = "", took = 0;

// -- what is chosen: it stays in the address, in links and in filters, and is counted
const boxes = () => [...document.querySelectorAll("#chosen input[type=checkbox][name]")];
const chosen = () => [...document.querySelectorAll("#chosen input[type=hidden][name=run], #chosen input[name]:checked")].flatMap(each => each.value.split(","));
const choose = () => {
  const form = document.getElementById("chosen"), count = document.getElementById("count");
  if (!form || !count) return;
  const names = chosen(), [box] = boxes(), key = box?.name || "run", most = Number(form.dataset.most || Infinity);
  const with_names = text => {
    const query = new URLSearchParams(text);
    query.delete(key);
    for (const value of key === "run" ? [names.join(",")] : names) if (value) query.append(key, value);
    return query.size ? `?${query}` : "";
  };
  if (names.join().length < 30000) {
    history.replaceState(null, "", location.pathname + with_names(location.search));
    document.querySelectorAll('#main a[href^="?"]').forEach(each => each.setAttribute("href", with_names(each.getAttribute("href")) || "?"));
    document.querySelectorAll("#main form.filters").forEach(each => {
      each.querySelector("input[name=run]")?.remove();
      if (names.length) each.append(Object.assign(document.createElement("input"), {type: "hidden", name: "run", value: names.join(",")}));
    });
  }
  count.textContent = `${names.length} chosen${names.length > most ? `, at most ${most} can be compared` : ""}`;
  document.querySelectorAll(".bar button").forEach(each => { each.disabled = !names.length || (each.matches(".go") && names.length > most); });
};
const all = () => {
  const box = document.getElementById("all"), study = document.getElementById("study");
  if (box) box.onchange = () => { boxes().forEach(each => { each.checked = box.checked; }); choose(); };
  boxes().forEach(each => { each.onchange = choose; });
  if (study) study.onchange = () => study.form.requestSubmit();
  choose();
};
// -- changes of notes, tags and the archive
document.addEventListener("submit", async event => {
  const form = event.target;
  if (!("edit" in form.dataset)) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form, event.submitter));
  if (!fields.has("run")) fields.set("run", chosen().join(","));
  try {
    const answer = await fetch("/edit", {method: "POST", credentials: "same-origin", body: fields, headers: {"x-workbench-key": document.body.dataset.key}});
    tell(answer.headers.get("content-type").startsWith("text/plain") ? await answer.text() : RESTARTED);
    if (answer.ok) form.querySelectorAll("input:not([type=hidden])").forEach(each => { each.value = ""; });
  } catch { tell("the server does not answer"); }
  renew();
});
const tell = sentence => {
  const line = document.getElementById("said");
  line.textContent = sentence;
  clearTimeout(telling);
  telling = setTimeout(() => { line.textContent = ""; }, 8000);
};
const keep = () => {
  const focus = document.activeElement, path = focus && main().contains(focus) && focus !== main() ? focus.id ? `#${CSS.escape(focus.id)}` : focus.getAttribute("href") ? `a[href="${CSS.escape(focus.getAttribute("href"))}"]` : focus.value ? `[value="${CSS.escape(focus.value)}"]` : "" : "";
  const open = [...document.querySelectorAll("details")].map(each => [each.id || each.querySelector("summary").textContent, each.open]);
  const values = [...main().querySelectorAll("input[id]:not([type=checkbox])")].map(each => [each.id, each.value]);
  const picked = boxes().filter(each => each.checked).map(each => each.value);
  const at = scrollY, left = main().querySelector(".scroll:has(.list)")?.scrollLeft;
  return () => {
    const states = new Map(open);
    for (const each of document.querySelectorAll("details")) { const key = each.id || each.querySelector("summary").textContent; if (states.has(key)) each.open = states.get(key); }
    for (const [id, value] of values) { const field = document.getElementById(id); if (field) field.value = value; }
    for (const each of boxes()) each.checked = picked.includes(each.value);
    choose();
    scrollTo(0, at);
    if (left) main().querySelector(".scroll:has(.list)")?.scrollTo(left, 0);
    if (path) main().querySelector(path)?.focus({preventScroll: true});
  };
};
const renew = async () => {
  if (busy) { waiting = true; return; }
  busy = true; waiting = false;
  const begun = performance.now();
  try {
    const answer = await fetch(location.pathname + location.search, {credentials: "same-origin"});
    if (answer.status === 403) { pulse.textContent = RESTARTED; source?.close(); return; }
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
    setTimeout(() => { busy = false; if (waiting) renew(); }, Math.min(1500, Math.max(500, 20 * took)));
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
