// The report on one predictor: the worst classes, the charts, and the rest once it is visible.

const isCrowded = K > 1500;
const tipOfClass = (d) => d.i !== undefined && [
  C.name[d.i],
  `coverage ${percent(coverage[d.i], 1)} (${percent(C.low[d.i])} to ${percent(C.high[d.i])})${C.target ? `, target ${percent(targetOf(d.i), 2)}` : ""}`,
  `${count(C.rows[d.i], "test example")}, ${count(C.calibration[d.i], "calibration example")}`,
];

const ranked = Array.from({ length: K }, (_, i) => i)
  .filter((i) => C.rows[i])
  .sort((a, b) => (coverage[a] - targetOf(a)) - (coverage[b] - targetOf(b)) || C.high[a] - C.high[b] || a - b);

// Vega marks the rows it is given as its own, so every chart gets new ones.
const classRows = () => ranked.map((i, place) => ({
  i, rank: place + 1, match: isMatch(i), below: isBelow(i),
  coverage: coverage[i], target: targetOf(i), low: C.low[i], high: C.high[i], calibration: C.calibration[i],
}));

function refillClassCharts() {
  refill("coverage", { classes: classRows() });
  refill("calibration", { classes: classRows() });
}

function drawWorst() {
  for (const i of D.verdict.worst) {
    const name = el("span", { class: "name", title: C.name[i] }, isolated(C.name[i]));
    const open = el("button", { type: "button", class: isBelow(i) && "below", onclick: () => show(i) },
      name, intervalBar(i, 96), el("span", { class: "value" }, percent(coverage[i])));
    byId("worst").append(el("li", {}, open));
  }
}

// From the top or a chart: scroll to the details of the class.
function show(i) {
  select(i, { focus: true });
  if (!isSheet.matches) detail.scrollIntoView({ block: "start" });
}

function countTicks(first, last) {
  const inside = (tick) => tick >= first && tick <= last;
  const sparse = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 1e6].filter(inside);
  if (sparse.length > 3) return sparse;
  const dense = [0, 2, 4, 6, 8, 10, 12, 15, 18, 20, 25, 30, 35, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 600, 800].filter(inside);
  return dense.length > 1 ? dense : [...new Set([first, last])];
}

// Means of classes with similar calibration counts, each drawn over its range of counts.
function meanRows() {
  const edges = [0, 1, 10, 20, 50, 100, 200, 500, 1000, Infinity];
  return edges.slice(1).flatMap((end, k) => {
    const members = ranked.filter((i) => C.calibration[i] >= edges[k] && C.calibration[i] < end);
    if (members.length < 2) return [];
    const counts = members.map((i) => C.calibration[i]);
    const mean = members.reduce((sum, i) => sum + coverage[i], 0) / members.length;
    return [{ mean, first: Math.min(...counts), last: Math.max(...counts), n: members.length }];
  });
}

async function drawCharts() {
  const low = Math.min(...ranked.map((i) => Math.min(targetOf(i), C.low[i])));
  const bottom = Math.max(0, Math.floor(low * 10) / 10);
  const counts = [Math.min(...C.calibration), Math.max(...C.calibration)];
  const onClick = (d) => d.i !== undefined && show(d.i);
  const coverageChart = drawChart("coverage", {
    data: { classes: classRows() },
    signals: { bottom, n: ranked.length, haze: K > 3000 ? 0.06 : 0.28, dot: K > 3000 ? 6 : K > 600 ? 12 : 20 },
    label: `Coverage of ${count(ranked.length, "class", "classes")}, from ${percent(coverage[ranked[0]])} to ${percent(coverage[ranked.at(-1)])}; ${whole.format(D.verdict.n_likely_below)} likely below ${D.target}. The table below has the same numbers.`,
    crowded: isCrowded, tipOf: tipOfClass, onClick,
    nearest: (rank) => ({ i: ranked[Math.max(0, Math.min(ranked.length, Math.round(rank)) - 1)] }),
  });
  const means = meanRows();
  const calibrationChart = drawChart("calibration", {
    data: { classes: classRows(), means },
    signals: { bottom, counts, ticks: countTicks(...counts) },
    label: `Coverage against calibration examples. ${means.map((m) => `${whole.format(m.first)} to ${whole.format(m.last)} examples: mean ${percent(m.mean, 1)}`).join("; ")}.`,
    crowded: isCrowded, onClick,
    tipOf: (d) => d.mean === undefined ? tipOfClass(d) : [`mean of ${count(d.n, "class", "classes")}`, percent(d.mean, 1), `${whole.format(d.first)} to ${whole.format(d.last)} calibration examples`],
  });
  await Promise.all([coverageChart, calibrationChart]);
}

startTable();
drawWorst();
drawNothing();
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && detail.classList.contains("open")) closeDetail();
});
// Draw the charts after the table is painted.
requestAnimationFrame(() => setTimeout(async () => {
  await drawCharts();
  if (!isSheet.matches && D.verdict.worst.length) select(D.verdict.worst[0], { open: false });
  root.dataset.ready = Math.round(performance.now());
}));
