// One class: coverage, threshold, confusions, examples.

const G = D.groups;
const detail = byId("detail");
const isSheet = matchMedia("(max-width: 79rem)");
let openedFrom = null;

const linkTo = (i) => el("button", { type: "button", class: "link", onclick: () => select(i, { focus: true }) }, isolated(C.name[i]));

function select(i, { focus = false, open = true } = {}) {
  if (open && !detail.contains(document.activeElement)) openedFrom = document.activeElement;
  state.selected = i;
  for (const row of byId("classes").tBodies[0].rows) {
    if (Number(row.dataset.class) === i) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
  for (const name of ["coverage", "calibration"]) views[name]?.signal("selected", i).run();
  drawDetail(i);
  detail.classList.toggle("open", open);
  detail.scrollTop = 0;
  if (open && (focus || isSheet.matches)) detail.focus({ preventScroll: !isSheet.matches });
}

function closeDetail() {
  detail.classList.remove("open");
  if (!isSheet.matches) drawNothing();
  const row = byId("classes").querySelector(`tr[data-class="${state.selected}"] button`);
  (openedFrom?.isConnected && openedFrom !== document.body ? openedFrom : row)?.focus();
}

function drawNothing() {
  state.selected = -1;
  byId("classes").querySelector("[aria-current]")?.removeAttribute("aria-current");
  for (const name of ["coverage", "calibration"]) views[name]?.signal("selected", -1).run();
  detail.replaceChildren(el("p", { class: "nothing" }, "Select a class in the table or in a chart to see its details."));
}

function drawDetail(i) {
  const close = el("button", { type: "button", class: "quiet close", onclick: closeDetail }, "Close");
  detail.replaceChildren(
    el("header", {}, el("h3", { id: "detail-name", dir: "auto" }, C.name[i]), close),
    ...coverageParts(i),
    el("dl", { class: "facts" }, ...facts(i)),
    el("h4", {}, "Threshold"),
    el("p", {}, originOf(i)),
    el("h4", {}, "Confusions"),
    confusionList(i),
    el("h4", {}, "Examples"),
    exampleList(i),
  );
}

const WIDE = 0.1; // an interval wider than this comes from few examples

// The state of a class. Its own interval may exclude the target without a significant difference:
// among many classes a few do by chance.
function stateText(i) {
  if (stateOf(i) === "below") return `likely below ${targetText(i)}.`;
  if (stateOf(i) === "above") return `likely above ${targetText(i)}.`;
  const among = `not significant among ${count(D.n_classes_evaluated, "class", "classes")}.`;
  if (C.high[i] < targetOf(i)) return `below ${targetText(i)}, but ${among}`;
  if (C.low[i] > targetOf(i)) return `above ${targetText(i)}, but ${among}`;
  if (C.high[i] - C.low[i] > WIDE) return `consistent with ${targetText(i)}; ${count(C.rows[i], "example")} give a wide interval.`;
  return `consistent with ${targetText(i)}.`;
}

function coverageParts(i) {
  if (!C.rows[i]) return [el("p", { class: "statement" }, "No test examples of this class; its coverage is unknown.")];
  const limits = `${percent(C.low[i])} to ${percent(C.high[i])}`;
  return [
    el("p", { class: "statement" },
      `${whole.format(C.covered[i])} of ${count(C.rows[i], "test example")} covered, ${percent(coverage[i], 1)} (95% confidence interval ${limits}): `,
      el("span", { class: isBelow(i) && "below-tag" }, stateText(i))),
    el("div", { class: isBelow(i) && "below" }, intervalBar(i, 340, 20)),
  ];
}

function facts(i) {
  const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
  const list = [fact("Calibration examples", whole.format(C.calibration[i]))];
  list.push(fact("Threshold", short(threshold(i))));
  if (C.cluster) list.push(fact("Cluster", C.cluster[i] < 0 ? "none" : String(C.cluster[i])));
  if (C.target) list.push(fact("Target", percent(C.target[i], 2)));
  if (C.guaranteed) list.push(fact("Guaranteed", guaranteedText(i)));
  if (C.size[i] !== null) list.push(fact("Mean set size", C.size[i].toFixed(1)));
  return list;
}

const ordinal = (n) => {
  const ending = n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th";
  return `${whole.format(n)}${ending}`;
};

const listed = (parts) => parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;

function weightsOf(i) {
  const found = Object.entries(D.weights).filter(([, shares]) => shares[i] >= 0.005);
  if (!found.length) return "";
  return ` Weights: ${listed(found.map(([of, shares]) => `${of} (${percent(shares[i])})`))}.`;
}

function originOf(i) {
  const g = G.of_class[i];
  if (C.price?.[i]) return C.price[i];
  if (threshold(i) !== null && C.set_by_floor?.[i]) {
    return `The guarantee of ${guaranteedText(i)} sets this threshold, from ${count(C.calibration[i], "calibration score")} of this class.`;
  }
  if (g < 0) return D.origin.replace("{rows}", count(C.calibration[i], "calibration example")) + weightsOf(i);
  if (threshold(i) === null) {
    return `The class is always included: it has ${count(G.rows[g], "calibration score")} ${G.whose[g]}, too few for a finite threshold.`;
  }
  const rank = G.rank[g] ? `the ${ordinal(G.rank[g])} smallest` : C.target ? "a quantile" : "a weighted quantile";
  return `A set includes the class if its score is at most the threshold, ${rank} of ${whole.format(G.rows[g])} calibration scores ${G.whose[g]}.`;
}

// ---- confusions and examples

function confusionList(i) {
  const pairs = C.confused[i];
  if (!C.rows[i]) return el("p", { class: "nothing" }, "Unknown without test examples.");
  if (!pairs.length) return el("p", { class: "nothing" }, "None: it is the top class of all its test examples.");
  const list = el("ul", { class: "confusions" });
  for (let k = 0; k < pairs.length; k += 2) {
    list.append(el("li", {}, linkTo(pairs[k]), el("span", { class: "faint" }, `${whole.format(pairs[k + 1])} of ${whole.format(C.rows[i])}`)));
  }
  return list;
}

const chance = (value) => (value < 0.1 ? "<0.1%" : `${value}%`);

function exampleList(i) {
  if (!C.examples[i].length) return el("p", { class: "nothing" }, "No test examples of this class.");
  const list = el("ul", { class: "examples" });
  for (const [row, covered, size, ownChance, members, chances, summary] of C.examples[i]) {
    const chips = el("div", { class: "chips" });
    members.forEach((member, k) => {
      const text = [isolated(C.name[member]), el("span", { class: "faint" }, chance(chances[k]))];
      chips.append(el("span", { class: member === i ? "chip truth" : "chip", title: C.name[member] }, ...text, member === i ? el("span", { class: "unseen" }, "(the true class)") : null));
    });
    if (covered && !members.includes(i)) chips.append(el("span", { class: "chip truth" }, isolated(C.name[i]), el("span", { class: "faint" }, chance(ownChance))));
    const rest = size - members.length - (covered && !members.includes(i) ? 1 : 0);
    if (rest > 0) chips.append(el("span", { class: "chip" }, `and ${whole.format(rest)} more`));
    if (!size) chips.append(el("span", { class: "nothing" }, "The set is empty."));
    if (!covered) chips.append(el("span", { class: "chip absent", title: "The true class, which the set does not contain" }, "not ", isolated(C.name[i]), el("span", {}, chance(ownChance))));
    list.append(el("li", {}, el("span", { class: covered ? null : "missed" }, covered ? "Covered" : "Missed"),
      ` in row ${row}: ${size ? `a set of ${whole.format(size)}` : "an empty set"}`,
      summary && size > 1 ? el("span", { class: "summary" }, ` (${summary})`) : null, chips));
  }
  return list;
}
