// The comparison report: the Pareto chart and the table of candidates.

const rows = D.candidates;
const order = { key: "cost", down: false };

// The axes of the chart; all other metrics are only columns.
const [GAP, SIZE] = ["shortfall", "avg_size"].map((name) => D.metrics.find((metric) => metric.name === name));

const fixed = (value, { unit, digits }) =>
  value === null ? "–" : unit === "share" ? `${(100 * value).toFixed(digits - 2)}%` : value.toFixed(digits);
const text = (row, metric) => fixed(row[metric.name], metric);
const error = (row, metric) => `± ${fixed(row[`${metric.name}_se`], metric)}`;
const withError = (row, metric) => el("span", {}, text(row, metric), " ", el("small", {}, error(row, metric)));

const COST = {
  key: "cost", title: "Cost", number: true,
  cell: (row) => el("span", { class: row.significantly_above_best || row.is_recommended ? null : "faint" }, row.cost.toFixed(1)),
};
const NOTE = { key: "note", title: "Note", cell: (row) => row.note };
const metricColumn = (metric) => ({ key: metric.name, title: metric.title, number: true, wide: metric !== GAP && metric !== SIZE, cell: (row) => withError(row, metric) });

const COLUMNS = [
  { key: "name", title: "Candidate", cell: (row) => isolated(row.name) },
  COST,
  NOTE,
  ...D.metrics.map(metricColumn),
];

const classOf = (column) => ["number", "wide"].filter((flag) => column[flag]).join(" ") || null;

function drawTable() {
  const table = byId("candidates");
  const head = el("tr");
  for (const column of COLUMNS) {
    const sorted = column.key === order.key ? (order.down ? "descending" : "ascending") : "none";
    head.append(el("th", { scope: "col", class: classOf(column), "aria-sort": sorted, "data-key": column.key },
      el("button", { type: "button", onclick: () => sortBy(column.key) }, column.title)));
  }
  table.tHead.replaceChildren(head);
  const sign = order.down ? -1 : 1;
  const compare = (a, b) => (a < b ? -sign : a > b ? sign : 0);
  const sorted = [...rows].sort((a, b) => compare(a[order.key], b[order.key]));
  table.tBodies[0].replaceChildren(...sorted.map((row) => {
    const line = el("tr", { class: row.is_recommended && "recommended" });
    for (const column of COLUMNS) line.append(el("td", { class: classOf(column) }, column.cell(row)));
    return line;
  }));
}

function sortBy(key) {
  order.down = order.key === key ? !order.down : false;
  order.key = key;
  drawTable();
  byId("candidates").tHead.querySelector(`[data-key="${key}"] button`).focus();
}

const MOST_OVERLAP = 60; // square pixels of a name on others: about half a letter

const sizeTicks = () => {
  const sizes = rows.map((row) => row.avg_size);
  const [least, most] = [0.8 * Math.min(...sizes), 1.25 * Math.max(...sizes)];
  return [0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10000].filter((tick) => tick >= least && tick <= most);
};

const candidateRows = (places) => rows.map((row, k) => ({
  ...row, ...places[k],
  gap_low: row.shortfall - row.shortfall_se, gap_high: row.shortfall + row.shortfall_se,
  size_low: row.avg_size - row.avg_size_se, size_high: row.avg_size + row.avg_size_se,
}));

// Place each name where it overlaps no other name and no mark. Without such a place, only the
// recommended candidate keeps its name.
function placeNames(view) {
  const [x, y] = [view.scale("x"), view.scale("y")];
  const dots = rows.map((row) => ({ x: x(row.avg_size), y: y(row.shortfall) }));
  const taken = dots.map((dot) => [dot.x - 7, dot.x + 7, dot.y - 7, dot.y + 7]);
  const choices = ["left", "right"].flatMap((align) => [-10, 13, -24, 27].map((dy) => ({ align, dx: align === "left" ? 9 : -9, dy })));
  const places = new Array(rows.length);
  const order = rows.map((_, k) => k).sort((a, b) => rows[b].is_recommended - rows[a].is_recommended || rows[b].on_pareto_front - rows[a].on_pareto_front || dots[a].y - dots[b].y);
  for (const k of order) {
    const width = 6.6 * rows[k].name.length;
    const boxOf = ({ align, dx, dy }) => {
      const left = dots[k].x + dx - (align === "left" ? 0 : width);
      return [left, left + width, dots[k].y + dy - 8, dots[k].y + dy + 6];
    };
    const overlap = (a, b) => Math.max(0, Math.min(a[1], b[1]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[2], b[2]));
    const cost = (choice) => {
      const box = boxOf(choice);
      const outside = Math.max(0, box[1] - view.width()) + Math.max(0, -box[0]);
      return 20 * outside + taken.reduce((sum, other, j) => sum + (j === k ? 0 : overlap(box, other)), 0) + Math.abs(choice.dy) / 10;
    };
    const best = choices.reduce((found, choice) => (cost(choice) < cost(found) ? choice : found));
    const fits = rows[k].is_recommended || cost(best) < MOST_OVERLAP;
    places[k] = { ...best, label: fits ? rows[k].name : "" };
    if (fits) taken.push(boxOf(best));
  }
  return places;
}

async function drawPareto() {
  const nowhere = rows.map((row) => ({ align: "left", dx: 9, dy: -10, label: row.name }));
  const view = await drawChart("pareto", {
    data: { candidates: candidateRows(nowhere) },
    signals: { ticks: sizeTicks() },
    label: `${GAP.title} against ${SIZE.title}. ${rows.map((row) => `${row.name}: ${text(row, GAP)} at ${text(row, SIZE)}`).join("; ")}.`,
    tipOf: (d) => d.shortfall !== undefined && [
      d.name,
      `${GAP.title} ${text(d, GAP)} ${error(d, GAP)}`,
      `${text(d, SIZE)} ${error(d, SIZE)} labels per set`,
    ],
  });
  const place = () => refill("pareto", { candidates: candidateRows(placeNames(view)) });
  place();
  view.addSignalListener("width", () => setTimeout(place));
}

drawTable();
await drawPareto();
root.dataset.ready = Math.round(performance.now());
