// Shared by all reports: data, elements, numbers as text, light and dark.

const D = JSON.parse(document.getElementById("data").textContent);

const byId = (id) => document.getElementById(id);

// Text only ever becomes a text node, so a name cannot turn into markup.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

// A name in any script, which must not reorder the text around it.
const isolated = (text, attributes = {}) => el("bdi", attributes, text);

const whole = new Intl.NumberFormat("en");
const count = (n, noun, plural = `${noun}s`) => `${whole.format(n)} ${n === 1 ? noun : plural}`;
const percent = (share, digits = 0) =>
  `${(100 * share).toLocaleString("en", { maximumFractionDigits: digits })}%`;
const short = (number) => (number === null ? "∞" : String(+number.toPrecision(4)));

// ---- the hint that follows the pointer

const tip = byId("tip");

function showTip(event, title, ...lines) {
  tip.replaceChildren(el("b", {}, isolated(title)), ...lines.map((line) => el("div", {}, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 14 : event.clientX + 14;
  const top = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

const hideTip = () => { tip.hidden = true; };

// ---- light and dark

const root = document.documentElement;
const themeButton = byId("theme");

function useTheme(theme) {
  root.dataset.theme = theme;
  nameThemeButton();
  recolorCharts();
}

// Name the button after its effect.
function nameThemeButton() {
  const other = root.dataset.theme === "dark" ? "light" : "dark";
  themeButton.textContent = other === "dark" ? "Dark" : "Light";
  themeButton.title = `Switch to ${other} colors`;
}

nameThemeButton();
themeButton.addEventListener("click", () => {
  const theme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("evencover-theme", theme); } catch { /* for this visit only */ }
  useTheme(theme);
});

// Paper is white.
let themeBeforePrint = null;
addEventListener("beforeprint", () => {
  themeBeforePrint = root.dataset.theme;
  useTheme("light");
});
addEventListener("afterprint", () => useTheme(themeBeforePrint ?? root.dataset.theme));
