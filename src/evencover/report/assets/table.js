// The table of classes: filter, sort, one page of rows at a time.

const C = D.classes;
const K = C.name.length;
const PAGE = 50;

const targetOf = (i) => (C.target ? C.target[i] : 1 - D.alpha);
const targetText = (i) => (C.target ? `its target of ${percent(targetOf(i), 2)}` : D.target);

const stateOf = (i) => D.states[C.state[i]];
const isBelow = (i) => stateOf(i) === "below";

const coverage = Array.from({ length: K }, (_, i) => (C.rows[i] ? C.covered[i] / C.rows[i] : null));
const threshold = (i) => C.threshold[i];
const guaranteedText = (i) => (C.guaranteed[i] ? percent(C.guaranteed[i]) : "none");
const clusterName = (m) => (m < 0 ? "no cluster" : `cluster ${m}`);
// Match "Kölsch" with the query "kolsch".
const fold = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
const folded = C.name.map(fold);

const state = { query: "", cluster: "", least: 0, most: Infinity, below: false, sort: "coverage", down: false, page: 0, selected: -1 };
let matching = [];

const collator = new Intl.Collator("en", { numeric: true });
const nameRank = new Array(K);
Array.from({ length: K }, (_, i) => i)
  .sort((a, b) => collator.compare(C.name[a], C.name[b]) || a - b)
  .forEach((i, rank) => { nameRank[i] = rank; });

const COLUMNS = [
  { key: "name", title: "Class", value: (i) => nameRank[i], cell: nameCell },
  { key: "coverage", title: "Coverage", value: (i) => (C.rows[i] ? coverage[i] + C.high[i] / 1e6 : null), cell: coverageCell },
  ...(C.target
    ? [{ key: "target", title: "Target", number: true, value: (i) => C.target[i], cell: (i) => percent(C.target[i], 2) }]
    : []),
  { key: "limits", title: "95% interval", number: true, wide: true, value: (i) => (C.rows[i] ? C.high[i] + C.low[i] / 1e4 : null),
    cell: (i) => (C.rows[i] ? `${Math.round(100 * C.low[i])}–${percent(C.high[i])}` : "–") },
  { key: "rows", title: "Test examples", number: true, wide: Boolean(C.target), value: (i) => C.rows[i], cell: (i) => whole.format(C.rows[i]) },
  { key: "calibration", title: "Calibration examples", number: true, wide: true, value: (i) => C.calibration[i], cell: (i) => whole.format(C.calibration[i]) },
  ...(C.guaranteed
    ? [{ key: "guaranteed", title: "Guaranteed", number: true, wide: true, value: (i) => C.guaranteed[i], cell: guaranteedText }]
    : []),
  { key: "threshold", title: "Threshold", number: true, wide: true, extra: Boolean(C.target), value: (i) => threshold(i) ?? Infinity, cell: (i) => short(threshold(i)) },
  ...(C.cluster
    ? [{ key: "cluster", title: "Cluster", number: true, wide: true, value: (i) => C.cluster[i], cell: (i) => (C.cluster[i] < 0 ? "none" : String(C.cluster[i])) }]
    : []),
  { key: "size", title: "Set size", number: true, wide: true, value: (i) => C.size[i], cell: (i) => (C.size[i] === null ? "–" : C.size[i].toFixed(1)) },
  { key: "confused", title: "Confused with", wide: true, grow: true, extra: true,
    value: (i) => (C.confused[i].length ? nameRank[C.confused[i][0]] : null), cell: confusedCell },
];

const FLAGS = ["number", "wide", "grow", "extra"]; // of columns, as classes of their cells

function nameCell(i) {
  return el("button", { type: "button", class: "name", title: C.name[i] }, isolated(C.name[i]));
}

function coverageCell(i) {
  if (coverage[i] === null) return el("span", { class: "faint" }, "no test examples");
  const cell = el("span", {}, el("span", { class: "share" }, percent(coverage[i])));
  cell.prepend(intervalBar(i, 84));
  return cell;
}

function confusedCell(i) {
  if (!C.confused[i].length) return el("span", { class: "faint" }, "–");
  return el("span", { title: C.name[C.confused[i][0]] }, isolated(C.name[C.confused[i][0]]));
}

// Coverage from 0 to 100% with its interval, and a tick at the target of the class.
function intervalBar(i, width, height = 14) {
  const svg = (tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const x = (share) => 5 + share * (width - 10);
  const middle = height / 2;
  const bar = svg("svg", { class: "interval", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  bar.append(
    svg("line", { class: "track", x1: x(0), x2: x(1), y1: middle, y2: middle }),
    svg("line", { class: "range", x1: x(C.low[i]), x2: x(C.high[i]), y1: middle, y2: middle }),
    svg("line", { class: "target", x1: x(targetOf(i)), x2: x(targetOf(i)), y1: 0, y2: height }),
    svg("circle", { class: "point", cx: x(coverage[i]), cy: middle, r: 3.5 }),
  );
  return bar;
}

// ---- filter and sort

function isMatch(i) {
  return (!state.query || folded[i].includes(state.query))
    && (state.cluster === "" || C.cluster[i] === Number(state.cluster))
    && C.calibration[i] >= state.least && C.calibration[i] <= state.most
    && (!state.below || isBelow(i));
}

function arrange() {
  const { value } = COLUMNS.find((column) => column.key === state.sort);
  const values = Array.from({ length: K }, (_, i) => value(i));
  const sign = state.down ? -1 : 1;
  matching = [];
  for (let i = 0; i < K; i++) if (isMatch(i)) matching.push(i);
  // Classes without a value come last either way.
  matching.sort((a, b) => {
    if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null) || a - b;
    return sign * (values[a] - values[b]) || a - b;
  });
}

// ---- drawing

// On paper the titles are plain text: Chromium does not repeat a head that holds buttons.
function drawHead(isPaper = false) {
  const head = el("tr");
  for (const column of COLUMNS) {
    const sorted = column.key === state.sort ? (state.down ? "descending" : "ascending") : "none";
    const classes = FLAGS.filter((flag) => column[flag]).join(" ");
    head.append(el("th", { scope: "col", class: classes || null, "aria-sort": sorted, "data-key": column.key },
      isPaper ? column.title : el("button", { type: "button" }, column.title)));
  }
  byId("classes").tHead.replaceChildren(head);
}

function drawRow(i) {
  const row = el("tr", { "data-class": i, class: isBelow(i) && "below", "aria-current": i === state.selected && "true" });
  for (const column of COLUMNS) {
    const classes = FLAGS.filter((flag) => column[flag]).concat(column.key === "coverage" ? "coverage" : []);
    row.append(el("td", { class: classes.join(" ") || null }, column.cell(i)));
  }
  return row;
}

function drawRows(pageSize = PAGE) {
  const first = state.page * pageSize;
  const shown = matching.slice(first, first + pageSize).map(drawRow);
  if (!shown.length) {
    shown.push(el("tr", {}, el("td", { class: "empty", colspan: COLUMNS.length }, "No class matches the filters.")));
  }
  byId("classes").tBodies[0].replaceChildren(...shown);
  drawPages();
}

function drawPages() {
  const last = Math.max(0, Math.ceil(matching.length / PAGE) - 1);
  const step = (by, text) => el("button", {
    type: "button", class: "quiet", disabled: state.page + by < 0 || state.page + by > last,
    onclick: () => { state.page += by; drawRows(); byId("h-table").scrollIntoView({ block: "start" }); },
  }, text);
  const range = `${whole.format(state.page * PAGE + 1)} to ${whole.format(Math.min(matching.length, (state.page + 1) * PAGE))}`;
  byId("pages").replaceChildren(...(last ? [step(-1, "Previous"), el("span", {}, range), step(1, "Next")] : []));
}

function drawHits() {
  const all = matching.length === K;
  const below = matching.filter(isBelow).length;
  byId("hits").textContent = `${all ? count(K, "class", "classes") : `${whole.format(matching.length)} of ${count(K, "class", "classes")}`}, ${whole.format(below)} likely below ${D.target}`;
}

// Print the first classes in the chosen order, and count the rest.
function drawForPrint(most) {
  state.page = 0;
  drawHead(true);
  drawRows(most);
  const left = matching.length - most;
  byId("print-note").textContent = left > 0 ? `${count(left, "more class", "more classes")} in the HTML file.` : "";
}

function update() {
  state.page = 0;
  arrange();
  drawHead();
  drawRows();
  drawHits();
}

let fadeLater;

// ---- events

function readFilters() {
  state.query = fold(byId("query").value.trim());
  state.cluster = byId("cluster").value;
  state.least = byId("least").value === "" ? 0 : Number(byId("least").value);
  state.most = byId("most").value === "" ? Infinity : Number(byId("most").value);
  state.below = byId("below").checked;
  update();
  // Update the charts after a pause.
  clearTimeout(fadeLater);
  fadeLater = setTimeout(refillClassCharts, 150);
}

function sortBy(key) {
  state.down = state.sort === key ? !state.down : false;
  state.sort = key;
  update();
  byId("classes").tHead.querySelector(`[data-key="${key}"] button`).focus();
}

function moveFocus(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const buttons = [...byId("classes").tBodies[0].querySelectorAll("button.name")];
  const place = buttons.indexOf(document.activeElement);
  if (!step || place < 0 || !buttons[place + step]) return;
  event.preventDefault();
  buttons[place + step].focus();
}

function startTable() {
  if (C.cluster) {
    byId("cluster-label").hidden = false;
    const sizes = new Map();
    for (const m of C.cluster) sizes.set(m, (sizes.get(m) ?? 0) + 1);
    const order = [...sizes.keys()].sort((a, b) => (a < 0) - (b < 0) || a - b);
    byId("cluster").append(...order.map((m) => el("option", { value: m }, `${clusterName(m)} (${whole.format(sizes.get(m))})`)));
  }
  const filters = byId("filters");
  filters.addEventListener("input", readFilters);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(readFilters));
  const table = byId("classes");
  table.tHead.addEventListener("click", (event) => {
    const key = event.target.closest("th")?.dataset.key;
    if (key) sortBy(key);
  });
  table.tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-class]");
    // A click by keyboard has no detail; it moves the focus to the details.
    if (row) select(Number(row.dataset.class), { focus: event.detail === 0 });
  });
  table.tBodies[0].addEventListener("keydown", moveFocus);
  addEventListener("beforeprint", () => drawForPrint(100));
  addEventListener("afterprint", () => { drawHead(); drawRows(); });
  readFilters();
}
