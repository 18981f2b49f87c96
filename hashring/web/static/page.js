// What a page gains by JavaScript: it stays up to date, ages count on, look-ups need no new page,
// and the table can be sorted and filtered. Everything else works without.
"use strict";

const body = document.body;
const byId = (id) => document.getElementById(id);

// --- time: Redis' own, by the difference from this machine's ---------------------------------

let offset = 0;

function setTime(at) {
  if (at > 0) offset = at - Date.now() / 1000;
}

function duration(seconds) {
  const size = Math.max(0, seconds);
  if (size < 9.95) return size.toFixed(1) + " s";
  for (const [limit, divisor, unit] of [[120, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"]])
    if (size < limit) return Math.round(size / divisor) + " " + unit;
  return Math.round(size / 86400) + " d";
}

function tick() {
  const now = Date.now() / 1000 + offset;
  for (const each of document.querySelectorAll("time[data-since], time[data-until]")) {
    const {since, until} = each.dataset;
    const text = duration(since === undefined ? until - now : now - since);
    if (each.textContent !== text) each.textContent = text;
  }
}

// --- what the server sends ---------------------------------------------------------------------

const waiting = new Map(); // parts that hold the reader's selection, until it is gone

function selectedWithin(element) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && element.contains(selection.anchorNode);
}

function put(id, html) {
  const element = byId(id);
  if (!element) return;
  if (selectedWithin(element)) {
    waiting.set(id, html);
    return;
  }
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const address = focused && focused.getAttribute("href");
  if (element.tagName === "TR") {
    const holder = document.createElement("tbody");
    holder.innerHTML = html;
    element.replaceWith(holder.firstElementChild);
  } else {
    const top = element.scrollTop;
    element.innerHTML = html;
    element.scrollTop = top;
  }
  if (!address) return;
  for (const link of byId(id).querySelectorAll("a")) {
    if (link.getAttribute("href") !== address) continue;
    link.focus({preventScroll: true});
    break;
  }
}

document.addEventListener("selectionchange", () => {
  for (const [id, html] of [...waiting]) {
    const element = byId(id);
    if (element && selectedWithin(element)) continue;
    waiting.delete(id);
    put(id, html);
    arrange();
  }
});

function namesOfRows() {
  return new Set([...document.querySelectorAll("#rows tr")].map((row) => row.dataset.name));
}

function list(names) {
  return names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");
}

function announce(before, after) {
  const came = [...after].filter((name) => !before.has(name));
  const went = [...before].filter((name) => !after.has(name));
  const words = [];
  if (came.length) words.push(`${list(came)} joined`);
  if (went.length) words.push(`${list(went)} left`);
  if (words.length) byId("news").textContent = words.join("; ");
  for (const row of document.querySelectorAll("#rows tr"))
    if (came.includes(row.dataset.name)) row.classList.add("fresh");
}

function update(message) {
  setTime(message.at);
  const {rows = {}, gone = []} = message;
  const before = byId("rows") ? namesOfRows() : null;
  for (const [id, html] of Object.entries(message.parts))
    // While something is asked, the picture comes with the answer, marked.
    if (id !== "picture" || !asked.any()) put(id, html);
  for (const [id, html] of Object.entries(rows)) {
    if (byId(id)) put(id, html);
    else byId("rows").insertAdjacentHTML("beforeend", html);
  }
  for (const id of gone) {
    const row = byId(id);
    if (row) row.remove();
  }
  if (before) announce(before, namesOfRows());
  arrange();
  tick();
  if ("picture" in message.parts && asked.any()) ask(false);
}

function follow() {
  const live = byId("live");
  const address = new URL(body.dataset.feed, location.href);
  address.searchParams.set("since", body.dataset.version);
  const source = new EventSource(address);
  const say = (text, off) => {
    live.hidden = false;
    live.textContent = text;
    live.classList.toggle("off", off);
  };
  source.onopen = () => say("live", false);
  source.onmessage = (event) => update(JSON.parse(event.data));
  source.onerror = () => {
    say("not connected", true);
    // Refused, and not merely interrupted: the browser has given up, so try again later.
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  };
  addEventListener("pagehide", () => source.close());
}

// --- a key, and who inherits -------------------------------------------------------------------

const asked = {
  key: null,
  node: null,
  read() {
    const query = new URLSearchParams(location.search);
    this.key = query.get("key");
    this.node = query.get("node");
  },
  any() { return this.key !== null || this.node !== null; },
};
let asking = 0;

async function ask(remember) {
  const address = new URL(location.href);
  address.hash = "";
  for (const name of ["key", "node"]) {
    if (asked[name] === null) address.searchParams.delete(name);
    else address.searchParams.set(name, asked[name]);
  }
  if (remember) history.pushState(null, "", address);
  const number = ++asking;
  const wanted = new URL(address);
  wanted.pathname += "/asked";
  try {
    const answer = await fetch(wanted);
    if (!answer.ok) throw new Error(String(answer.status));
    const parts = await answer.json();
    if (number !== asking) return; // something newer has been asked
    for (const [id, html] of Object.entries(parts)) put(id, html);
    arrange();
    tick();
  } catch (error) {
    if (remember) location.assign(address); // the page itself says what is wrong
  }
}

function ringPage() {
  const form = byId("ask");
  const ring = form.elements.name.value;
  asked.read();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    asked.key = form.elements.key.value;
    ask(true);
  });
  document.addEventListener("click", (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest("a");
    const href = link && link.getAttribute("href");
    if (!href) return;
    const address = new URL(href, location.href);
    const node = address.searchParams.get("node");
    if (address.pathname !== location.pathname || node === null) return;
    if (address.searchParams.get("name") !== ring) return;
    event.preventDefault();
    asked.node = asked.node === node ? null : node; // once more lets go
    ask(true);
  });
  addEventListener("popstate", () => {
    asked.read();
    form.elements.key.value = asked.key || "";
    ask(false);
  });
}

// --- the table ---------------------------------------------------------------------------------

const order = {by: "name", down: false};
const states = {expired: 0, late: 1, full: 2, up: 3};
const byName = new Intl.Collator(undefined, {numeric: true}).compare;
let filter = "";

function value(row) {
  return order.by === "state" ? states[row.dataset.state] : Number(row.dataset[order.by]);
}

function compare(a, b) {
  const names = byName(a.dataset.name, b.dataset.name);
  const way = order.by === "name" ? names : value(a) - value(b);
  return (order.down ? -way : way) || names;
}

function arrange() {
  const rows = byId("rows");
  if (!rows) return;
  const all = [...rows.children];
  const sorted = [...all].sort(compare);
  if (sorted.some((row, index) => row !== all[index])) {
    const focused = rows.contains(document.activeElement) ? document.activeElement : null;
    rows.append(...sorted);
    if (focused) focused.focus({preventScroll: true});
  }
  for (const row of sorted) {
    row.hidden = filter !== "" && !row.textContent.toLowerCase().includes(filter);
    const link = row.querySelector("a.node");
    const node = new URL(link.href).searchParams.get("node");
    row.classList.toggle("chosen", node === asked.node);
    if (node === asked.node) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function table() {
  const heads = document.querySelectorAll("th[data-sort]");
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const by = head.dataset.sort;
      const firstUp = ["name", "state", "expires"].includes(by);
      order.down = order.by === by ? !order.down : !firstUp;
      order.by = by;
      for (const other of heads) {
        other.classList.toggle("sorted", other === head);
        if (other === head) other.setAttribute("aria-sort", order.down ? "descending" : "ascending");
        else other.removeAttribute("aria-sort");
      }
      arrange();
    });
  }
  const field = byId("filter");
  field.closest("label").hidden = false;
  field.addEventListener("input", () => { filter = field.value.toLowerCase(); arrange(); });
}

// -----------------------------------------------------------------------------------------------

if (body.dataset.feed) {
  setTime(Number(body.dataset.at));
  if (byId("ask")) ringPage();
  if (byId("rows")) table();
  arrange();
  tick();
  setInterval(tick, 1000);
  follow();
}
