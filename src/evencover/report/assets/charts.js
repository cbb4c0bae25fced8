// Vega views: made from the compiled charts, colored by the style sheet.

const views = {};

const COLORS = ["ink", "muted", "line", "calm", "warn", "paper"];

function recolorCharts() {
  const style = getComputedStyle(root);
  for (const view of Object.values(views)) {
    for (const name of COLORS) view.signal(name, style.getPropertyValue(`--${name}`).trim());
    view.run();
  }
}

// Draw chart `name` in #chart-`name`. `tipOf` and `onClick` are given the datum under the pointer, or
// what `nearest` makes of a place on the x axis.
async function drawChart(name, { data, signals = {}, label, crowded = false, tipOf, onClick, nearest }) {
  const container = byId(`chart-${name}`);
  const { view } = await vegaEmbed(container, filled(D.charts[name], data, signals), {
    mode: "vega",
    // Thousands of marks are quicker on a canvas; a few are sharper, on screen and paper, as SVG.
    renderer: crowded ? "canvas" : "svg",
    ast: true, // expressions are interpreted, so the page may forbid eval
    actions: false,
    defaultStyle: false,
    tooltip: false,
    logLevel: 1, // errors; before a class is selected, its mark has no extent
  });
  // Replace Vega's generic label with a description of the chart.
  container.setAttribute("role", "img");
  container.removeAttribute("aria-roledescription");
  container.removeAttribute("aria-labelledby"); // the caption, until there is this sentence
  container.setAttribute("aria-label", label);
  const datumAt = (event, item) => {
    if (!nearest) return item?.datum;
    const x = event.clientX - container.getBoundingClientRect().left - view.origin()[0];
    return x >= 0 && x <= view.width() ? nearest(view.scale("x").invert(x)) : undefined;
  };
  view.addEventListener("mousemove", (event, item) => {
    const datum = datumAt(event, item);
    const text = datum && tipOf?.(datum);
    if (text) showTip(event, ...text);
    else hideTip();
  });
  container.addEventListener("mouseleave", hideTip);
  if (onClick) {
    view.addEventListener("click", (event, item) => {
      const datum = datumAt(event, item);
      if (datum) onClick(datum);
    });
    if (nearest) container.style.cursor = "pointer";
  }
  views[name] = view;
  return view;
}

// The chart with its data, signals and colors in place, so that it is drawn once.
function filled(chart, data, signals) {
  const style = getComputedStyle(root);
  const known = { ...signals };
  for (const name of COLORS) known[name] = style.getPropertyValue(`--${name}`).trim();
  return {
    ...chart,
    data: chart.data.map((set) => (data[set.name] ? { ...set, values: data[set.name] } : set)),
    signals: chart.signals.map((signal) => (signal.name in known ? { ...signal, value: known[signal.name] } : signal)),
  };
}

function refill(name, data, signals = {}) {
  const view = views[name];
  if (!view) return;
  for (const [signal, value] of Object.entries(signals)) view.signal(signal, value);
  for (const [set, rows] of Object.entries(data)) view.data(set, rows);
  view.run();
}
