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
  const away = body.classList.contains("away") || document.querySelector("#failure > .banner");
  for (const each of document.querySelectorAll("time[data-since], time[data-until]")) {
    const {since, until} = each.dataset;
    if (!each.title) each.title = `${each.dateTime.slice(0, 19).replace("T", " ")} UTC`;
    // While nothing arrives, nobody knows whether a node has renewed.
    const text = since !== undefined ? duration(now - since) : away ? "-" : duration(until - now);
    if (each.textContent !== text) each.textContent = text;
  }
}

// --- what the server sends ---------------------------------------------------------------------

const HELD = 10_000; // milliseconds for which a selection keeps its part as it is
const waiting = new Map(); // what such parts will be, and since when it waits

function selectedWithin(element) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && element.contains(selection.anchorNode);
}

// What there is within an element of the kind that had the focus: the link to the same, or the button.
function twin(focused, within) {
  return [...within.querySelectorAll(focused.tagName)].find(
    (each) => each.getAttribute("href") === focused.getAttribute("href"));
}

function put(id, html) {
  const element = byId(id);
  if (!element) return;
  // The banner of a failure decides what is shown as live, and never waits.
  if (id !== "failure" && selectedWithin(element)) {
    const since = waiting.get(id)?.since ?? performance.now();
    waiting.set(id, {html, since});
    if (performance.now() - since < HELD) return;
  }
  waiting.delete(id);
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const head = focused && focused.closest("th[data-sort]");
  const top = element.scrollTop;
  element.innerHTML = html;
  sortable(element);
  element.scrollTop = top;
  if (head)
    element.querySelector(`th[data-sort=${head.dataset.sort}] button`)?.focus({preventScroll: true});
  else if (focused?.hasAttribute("href")) twin(focused, element)?.focus({preventScroll: true});
}

function putWaiting() {
  const before = waiting.size;
  for (const [id, {html}] of [...waiting]) put(id, html);
  if (waiting.size < before) arrange();
}

document.addEventListener("selectionchange", putWaiting);

function list(names) {
  return names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");
}

function announce(came, went) {
  const words = [];
  if (came.length) words.push(`${list(came)} joined`);
  if (went.length) words.push(`${list(went)} left`);
  if (words.length) byId("news").textContent = words.join("; ");
}

function parsed(html, selector) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content.querySelector(selector);
}

function rowOf(html) {
  return document.adoptNode(parsed(html, "tr"));
}

function putRows({rows = {}, gone = [], whole = false}) {
  const came = [], went = [];
  // The rows that the page came without are no news.
  const more = whole && byId("more");
  for (const table of tables) {
    const absent = whole ? [...table.rows.keys()].filter((id) => !(id in rows)) : gone;
    for (const id of absent) {
      const row = table.rows.get(id);
      if (!row) continue;
      went.push(row.dataset.name);
      table.rows.delete(id);
      row.remove();
    }
  }
  for (const [id, html] of Object.entries(rows)) {
    const row = rowOf(html);
    const table = tables.find((each) => each.body.id === (row.dataset.into || "rows"));
    if (!table) continue;
    const old = table.rows.get(id);
    if (old) table.replace(old, row);
    else {
      came.push(row.dataset.name);
      row.classList.toggle("fresh", !more);
    }
    table.rows.set(id, row);
  }
  if (more) more.remove();
  // Nor are many changes at once, after the connection was lost.
  else if (byId("news") && !(whole && came.length > 20)) announce(came, went);
}

function showConnection() {
  const live = byId("live"), away = body.classList.contains("away");
  const failed = document.querySelector("#failure > .banner");
  const text = away ? "not connected" : failed ? "no news from Redis" : "live";
  if (live.textContent !== text) live.textContent = text;
  live.classList.toggle("off", away || failed !== null);
}

// Of what was sent: the page may still show the verdict before, for a selection in it.
function showMood(html) {
  const {state, mark} = parsed(html, ".verdict").dataset;
  if (document.title !== mark + plainTitle) document.title = mark + plainTitle;
  const icon = byId("icon"), address = icon.getAttribute("href").replace(/\w+\.svg/, `${state}.svg`);
  if (icon.getAttribute("href") !== address) icon.setAttribute("href", address);
}

const plainTitle = document.title.replace(/^\W \w+ · /, "");

function update(message) {
  setTime(message.at);
  for (const [id, html] of Object.entries(message.parts))
    // While something is asked, the picture comes with the answer, marked.
    if (id !== "picture" || !asked.any()) put(id, html);
  putRows(message);
  if ("verdict" in message.parts) showMood(message.parts.verdict);
  showConnection();
  arrange();
  tick();
  if ("picture" in message.parts && asked.any()) ask(false);
}

let source = null, version = body.dataset.version;

// The service sends something every 15 seconds. A network that lets nothing through closes nothing.
const SILENT = 40_000; // milliseconds
const LONGEST = 300_000;
let first = SILENT; // for the first message of a connection: doubled if it does not come in time
let awaits = false; // whether it is open, and that message has not come
const clocks = () => [performance.now(), Date.now()]; // one may stand still in sleep, one may be set
let heard = clocks();

function silent() {
  const patience = awaits ? first : SILENT;
  return clocks().some((now, each) => now - heard[each] > patience);
}

function say(away) {
  byId("live").hidden = false;
  body.classList.toggle("away", away);
  showConnection();
  tick();
}

function follow() {
  rest();
  if (silent()) say(true);
  awaits = false;
  heard = clocks();
  const address = new URL(body.dataset.feed, location.href);
  address.searchParams.set("since", version);
  const own = source = new EventSource(address);
  own.onopen = () => {
    heard = clocks();
    awaits = true;
    say(false);
  };
  const hear = () => {
    heard = clocks();
    awaits = false;
  };
  own.addEventListener("alive", hear);
  own.onmessage = (event) => {
    hear();
    version = event.lastEventId;
    update(JSON.parse(event.data));
  };
  own.onerror = () => {
    say(true);
    // Refused, and not merely interrupted: the browser has given up, so try again later.
    if (own.readyState === EventSource.CLOSED) setTimeout(() => own === source && follow(), 3000);
  };
}

// A browser opens six connections to a host: tabs in the background leave theirs to the others.
function rest() {
  if (source) source.close();
  source = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) rest();
  else if (!source && body.dataset.feed) follow();
});
addEventListener("pagehide", rest);
addEventListener("pageshow", (event) => event.persisted && !source && body.dataset.feed && follow());

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
    ask(true).then(() => {
      // On a phone the answer is far below what was tapped.
      if (asked.node !== null && matchMedia("(max-width: 820px)").matches)
        byId("leaves").scrollIntoView({block: "start"});
    });
  });
  addEventListener("popstate", () => {
    asked.read();
    form.elements.key.value = asked.key || "";
    ask(false);
  });
}

// --- tables ------------------------------------------------------------------------------------

const states = {
  expired: 0, late: 1, unknown: 1, drained: 2, away: 3, full: 4, up: 5, // of nodes
  stalled: 0, leaving: 3, active: 5, // of members
};
const byName = new Intl.Collator(undefined, {numeric: true}).compare;
const textual = new Set(["name", "sees", "why", "from", "to", "where"]);
const tables = []; // those that the service keeps up to date
const WINDOW = 60; // more rows than that are in the page only where they can be seen
let filter = "";

function pinned() {
  try {
    return new Set(JSON.parse(localStorage.getItem("hashring.pinned") || "[]"));
  } catch (error) {
    return new Set();
  }
}

// How tables that come with a page, or with an answer, are sorted: the next ones are, too.
const SORTED = "hashring.sorted.";

function remembered(table) {
  try {
    return JSON.parse(sessionStorage.getItem(SORTED + table) || '["", false]');
  } catch (error) {
    return ["", false];
  }
}

function remember(table, order) {
  try {
    sessionStorage.setItem(SORTED + table, JSON.stringify(order));
  } catch (error) {
    // Without storage the order lasts as long as the table.
  }
}

class Table {
  constructor(element) {
    this.element = element;
    this.body = element.tBodies[0];
    this.box = element.closest(".scroll, #inherit");
    this.rows = new Map([...this.body.rows].map((row, place) => [row.id || place, row]));
    this.lasting = !this.body.classList.contains("rows");
    this.heads = [...element.querySelectorAll("th[data-sort]")];
    this.columns = new Map(this.heads.map((head) => [head.dataset.sort, head.cellIndex]));
    [this.by, this.down] = this.lasting ? remembered(element.id) : ["state", false];
    // As the service has ordered them, until somebody asks for another order.
    if (!this.columns.has(this.by)) this.by = "";
    this.shown = [];
    this.above = this.below = 0; // pixels that stand for the rows that are left out
    for (const head of this.heads) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => this.sort(head.dataset.sort));
    }
    this.mark();
    this.box.onscroll = () => this.render(); // replaces that of the table before
  }

  sort(by) {
    const firstUp = textual.has(by) || ["state", "expires", "first", "partition"].includes(by);
    this.down = this.by === by ? !this.down : !firstUp;
    this.by = by;
    if (this.lasting) remember(this.element.id, [this.by, this.down]);
    this.mark();
    this.arrange();
  }

  mark() {
    for (const head of this.heads) {
      const on = head.dataset.sort === this.by;
      head.classList.toggle("sorted", on);
      if (on) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  value(row) {
    if (this.by !== "state") return Number(row.dataset[this.by]);
    return row.dataset.order === undefined ? states[row.dataset.state] : Number(row.dataset.order);
  }

  text(row, by) {
    return row.dataset[by] ?? row.cells[this.columns.get(by)].textContent.trim();
  }

  compare(a, b) {
    let way;
    if (textual.has(this.by)) {
      const one = this.text(a, this.by), other = this.text(b, this.by);
      if (!one !== !other) return one ? -1 : 1; // what says nothing comes last, both ways
      way = byName(one, other);
    } else way = this.value(a) - this.value(b);
    if (way) return this.down ? -way : way;
    return this.columns.has("name") ? byName(this.text(a, "name"), this.text(b, "name")) : 0;
  }

  replace(old, row) {
    if (!old.isConnected) return;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    old.replaceWith(row);
    if (!focused) return;
    if (!this.lasting) dress(row, pinned()); // a pin that is hidden takes no focus
    (twin(focused, row) || row.querySelector("a.node, a") || row).focus({preventScroll: true});
  }

  arrange() {
    const pins = pinned();
    const rank = (row) => (row.dataset.into && pins.has(row.id) ? 0 : 1);
    this.shown = [...this.rows.values()].filter(
      (row) => this.lasting || filter === "" || words(row).includes(filter));
    if (this.by) this.shown.sort((a, b) => rank(a) - rank(b) || this.compare(a, b));
    if (!this.lasting) for (const row of this.shown) dress(row, pins);
    this.render();
  }

  // Puts the rows into the page: all of them, or those around what can be seen.
  render() {
    const inside = [...this.body.rows].filter((row) => !row.classList.contains("space"));
    if (!this.height && inside.length) this.height = inside[0].offsetHeight;
    let from = 0, to = this.shown.length, above = 0, below = 0;
    if (to > WINDOW) {
      this.box.classList.add("window");
      const height = this.height || 28;
      from = Math.max(0, Math.floor(this.box.scrollTop / height) - 30);
      to = Math.min(to, from + Math.ceil(this.box.clientHeight / height) + 60);
      above = from * height;
      below = (this.shown.length - to) * height;
    }
    const wanted = this.shown.slice(from, to);
    const same = inside.length === wanted.length && wanted.every((row, i) => row === inside[i]);
    if (!same || this.above !== above || this.below !== below) {
      [this.above, this.below] = [above, below];
      const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
      const before = above ? [space(above)] : [], after = below ? [space(below)] : [];
      this.body.replaceChildren(...before, ...wanted, ...after);
      if (focused && focused.isConnected) focused.focus({preventScroll: true});
      if (!this.lasting) tick();
    }
  }
}

// What a row says, without the names of what can be done to it.
function words(row) {
  return [...row.cells].flatMap((cell) => [...cell.childNodes])
    .filter((part) => !part.classList?.contains("act-link"))
    .map((part) => part.textContent).join(" ").toLowerCase();
}

function space(height) {
  const row = document.createElement("tr");
  row.className = "space";
  row.setAttribute("aria-hidden", "true");
  row.innerHTML = "<td></td>";
  row.firstChild.style.height = `${height}px`;
  return row;
}

function dress(row, pins) {
  const link = row.querySelector("a.node");
  if (link && !row.dataset.into) {
    const node = new URL(link.href).searchParams.get("node");
    const chosen = node === asked.node;
    row.classList.toggle("chosen", chosen);
    if (chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const pin = row.querySelector(".pin");
  if (pin) {
    pin.hidden = false;
    pin.setAttribute("aria-pressed", String(pins.has(row.id)));
  }
}

function arrange() {
  for (const table of tables) table.arrange();
  const nothing = byId("nothing");
  body.classList.toggle("filtered", filter !== "");
  if (nothing) nothing.hidden = filter === "" || tables.some((table) => table.shown.length);
}

// Makes tables sortable that the service does not keep up to date.
function sortable(within) {
  for (const table of within.querySelectorAll("table:has(th[data-sort]):not(:has(tbody.rows))"))
    new Table(table).arrange();
}

function prepareTables() {
  for (const body of document.querySelectorAll("tbody.rows"))
    tables.push(new Table(body.closest("table")));
  const field = byId("filter");
  if (!field) return;
  field.closest("label").hidden = false;
  field.addEventListener("input", () => { filter = field.value.toLowerCase(); arrange(); });
  document.addEventListener("click", (event) => {
    const pin = event.target.closest(".pin");
    if (!pin) return;
    const pins = pinned(), id = pin.closest("tr").id;
    if (!pins.delete(id)) pins.add(id);
    localStorage.setItem("hashring.pinned", JSON.stringify([...pins]));
    arrange();
    pin.focus({preventScroll: true});
  });
}

// --- a page without a stream --------------------------------------------------------------------

let renewing = null;

async function renew() {
  if (document.hidden) return;
  renewing?.abort(); // it has waited for as long as a page may be old
  renewing = new AbortController();
  try {
    const answer = await fetch(location.href, {signal: renewing.signal});
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    put("renewed", page.getElementById("renewed").innerHTML);
    document.title = page.title;
    byId("icon").setAttribute("href", page.getElementById("icon").getAttribute("href"));
    body.classList.remove("away");
  } catch (error) {
    body.classList.add("away"); // what is shown is old: none of it is green
  }
}

if (byId("renewed")) {
  setInterval(renew, 10_000);
  document.addEventListener("visibilitychange", renew);
}

// -----------------------------------------------------------------------------------------------

sortable(body);
if (body.dataset.feed) {
  setTime(Number(body.dataset.at));
  prepareTables();
  if (byId("ask")) ringPage();
  arrange();
  tick();
  setInterval(() => {
    putWaiting();
    if (source && silent()) {
      if (awaits) first = Math.min(2 * first, LONGEST);
      follow();
    }
    tick();
  }, 1000);
  if (!document.hidden) follow();
}
