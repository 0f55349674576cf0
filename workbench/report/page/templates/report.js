"use strict";
// Draws the figures of a report again on other axes, and sorts, filters and copies its tables. Everything on the page
// is readable without it. Texts are set as text, never as markup.
// What a reader has chosen outlives a drawing, since a page of `workbench view` is drawn again while runs go on.
const state = {off: new Set(), seeds: false, axis: new Map(), log: new Map(), high: new Map(), smooth: new Map(), zoom: new Map()};
const drawReport = () => {
const data = JSON.parse(document.getElementById("data").textContent);
const charts = new Map(data.charts.map(chart => [chart.id, chart]));
const plots = [];
const CHARACTER = 7.6, BOLD = 1.12, GAP = 15, NS = "http://www.w3.org/2000/svg";

const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) value === undefined || node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const svg = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const button = (label, action, attributes = {}) => {
  const node = make("button", {type: "button", ...attributes}, label);
  node.addEventListener("click", () => action(node));
  return node;
};

// -- on a page that is served, its address holds what the reader has chosen, so that a link shows the same
const chosen = ["axis", "log", "high", "smooth", "zoom"], served = location.protocol !== "file:";
const remember = () => {
  if (!served) return;
  const address = new URL(location.href);
  for (const key of [...address.searchParams.keys()]) if (chosen.includes(key.split(".")[0]) && key.includes(".")) address.searchParams.delete(key);
  for (const key of chosen) for (const [group, value] of state[key]) address.searchParams.set(`${key}.${group}`, value);
  state.seeds ? address.searchParams.set("seeds.", "true") : address.searchParams.delete("seeds.");
  state.off.size ? address.searchParams.set("off.", [...state.off].join(" ")) : address.searchParams.delete("off.");
  history.replaceState(null, "", address);
};
if (served) for (const [name, value] of new URLSearchParams(location.search)) {
  const [key, ...group] = name.split(".");
  if (chosen.includes(key) && key !== "zoom" && group.length) state[key].set(group.join("."), key === "axis" ? value : key === "smooth" ? Number(value) || 0 : value === "true");
  else if (key === "zoom" && group.length && /^-?[\d.e+-]+,-?[\d.e+-]+$/.test(value)) state.zoom.set(group.join("."), value.split(",").map(Number));
  else if (name === "seeds.") state.seeds = value === "true";
  else if (name === "off.") state.off = new Set(value.split(" ").map(Number));
}

// -- numbers as text, as in figures/drawing.py
const trim = (number, digits) => String(Number(number.toPrecision(digits)));
const minus = text => text.replace("-", "\u2212");
const power = value => {
  const e = Math.floor(Math.log10(value) + 1e-9), m = value / 10 ** e;
  const up = "10" + String(e).replace(/./g, c => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(c)]);
  return Math.abs(m - 1) < 1e-6 ? up : trim(m, 3) + "×" + up;
};
const large = value => {
  for (const [size, letter] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]]) if (value >= size) return trim(value / size, 3) + letter;
  return trim(value, 3);
};
const time = s => s < 60 ? trim(s, 3) + " s" : s < 3600 ? trim(s / 60, 3) + " min" : s < 172800 ? trim(s / 3600, 3) + " h" : trim(s / 86400, 3) + " d";
const amount = (axis, value) => axis === "seconds" ? time(value) : axis.startsWith("flops") && value >= 1e4 ? power(value) : value < 1e4 ? trim(value, 4) : large(value);
const plain = value => minus(value && (Math.abs(value) >= 1e4) ? large(value) : value && Math.abs(value) < 1e-3 ? value.toExponential(0) : trim(value, 8));
const places = (mean, half) => half === null ? (Math.abs(mean) < 5 ? 3 : 1) : [1, 2, 3].find(p => Number(half.toFixed(p)) > 0 && (Math.abs(mean).toFixed(p) - half.toFixed(p) > 0) === (Math.abs(mean) > half)) || 4;
const estimate = (mean, half) => minus(mean.toFixed(places(mean, half))) + (half === null ? "" : " ± " + half.toFixed(places(mean, half)));
const widthOf = text => [...text].reduce((sum, c) => sum + (c > "\u2e80" ? 12 : CHARACTER), 0);
const cut = (text, pixels) => widthOf(text) <= pixels ? text : shortened(text, Math.max(3, Math.floor(pixels / CHARACTER)));
const shortened = (text, most) => {
  const tail = Math.floor((most - 1) / 3); // ends differ more often than beginnings
  return text.slice(0, most - 1 - tail).trimEnd() + "…" + (tail ? text.slice(-tail) : "").trimStart();
};

const niceTicks = (low, high, most) => {
  const span = high - low;
  if (!(span > 0)) return [low];
  let step = 10 ** Math.floor(Math.log10(span / most));
  step *= [1, 2, 5, 10].find(m => span / (m * step) <= most);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) ticks.push(i * step);
  return ticks;
};
const logTicks = (low, high, most) => {
  let ticks = [];
  for (const multiples of [[1, 2, 5], [1, 3], [1]]) {
    ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (const m of multiples) if (m * 10 ** e >= low * .999 && m * 10 ** e <= high * 1.001) ticks.push(m * 10 ** e);
    if (ticks.length <= most) break;
  }
  return ticks.filter((_, i) => i % Math.max(1, Math.ceil(ticks.length / most)) === 0);
};
const spread = (at, low, high) => {
  const order = at.map((y, i) => [y, i]).sort((a, b) => a[0] - b[0]), moved = [];
  for (const [y] of order) moved.push(moved.length ? Math.max(y, moved[moved.length - 1] + GAP) : Math.max(y, low));
  if (moved.length && moved[moved.length - 1] > high) {
    moved[moved.length - 1] = high;
    for (let i = moved.length - 2; i >= 0; i--) moved[i] = Math.min(moved[i], moved[i + 1] - GAP);
  }
  const result = [];
  order.forEach(([, i], k) => { result[i] = moved[k]; });
  return result;
};

// -- drawing
const classOf = series => data.arms[series.a]?.[1] ?? "q";
const isPanel = chart => chart.id.startsWith("curve-"); // its heading stands above it
const text = (x, y, content, name = "t", anchor) => svg("text", {x, y, class: name, ...(anchor && {"text-anchor": anchor})}, content);
const path = (d, name) => svg("path", {d, class: name});
const limits = (chart, visible) => {
  if (visible.length === chart.series.length && !state.zoom.has(chart.id)) return chart.limits;
  const values = [...visible.flatMap(s => [...s.y, ...Object.values(s.s).flat().filter(v => v !== null)]), ...chart.levels.map(l => l[1])];
  let low = Math.min(...values), high = Math.max(...values);
  const wide = high - low || Math.abs(high) * .1 || 1, pad = .04 * wide;
  for (const s of visible) s.y.forEach((y, i) => {
    if (s.h[i] !== null) { low = Math.min(low, Math.max(y - s.h[i], Math.min(...values) - .35 * wide)); high = Math.max(high, Math.min(y + s.h[i], Math.max(...values) + .35 * wide)); }
  });
  return [low - pad, high + pad];
};
const axisOf = chart => {
  const wanted = state.axis.get(groupOf(chart));
  return chart.axes.includes(wanted) ? wanted : chart.axes[0];
};
const groupOf = chart => isPanel(chart) ? "curves" : chart.id;
const isLog = chart => state.log.has(groupOf(chart)) ? state.log.get(groupOf(chart)) : chart.log;

// The exponential moving average of a line, by which later points weigh more; the band and the lines of seeds follow.
const smoothed = (row, weight) => {
  let mean = null;
  return row.map(v => v === null ? null : (mean = mean === null ? v : weight * mean + (1 - weight) * v));
};
const drawLines = (plot, chart, width, height) => {
  const weight = state.smooth.get(groupOf(chart)) || 0, smooth = row => weight ? smoothed(row, weight) : row;
  const axis = axisOf(chart), visible = chart.series.filter(s => !state.off.has(s.a) && axis in s.x)
    .map(s => weight ? {...s, y: smooth(s.y), s: Object.fromEntries(Object.entries(s.s).map(([seed, row]) => [seed, smooth(row)]))} : s);
  const xs = s => data.x[s.x[axis]], small = width < 480;
  const room = Math.floor((height - 50) / GAP);
  const named = small ? [] : visible.slice(0, Math.max(0, room - chart.levels.length)), levels = small ? [] : chart.levels;
  const titles = [...named.map(s => cut(s.t, width * .28)), ...levels.map(l => l[0])];
  let [low, high] = limits(chart, visible);
  const least = Math.min(...visible.flatMap(s => s.y)), steep = state.high.get(groupOf(chart)) && least > 0;
  if (steep) low = Math.max(low, least * .9);
  const ticks = (steep ? logTicks : niceTicks)(low, high, height < 240 ? 4 : 6);
  const left = 10 + Math.max(20, ...ticks.map(v => widthOf(plain(v)))), right = titles.length ? 14 + BOLD * Math.max(...titles.map(widthOf)) : 12;
  const top = isPanel(chart) ? 10 : 26, bottom = 40, w = width - left - right, h = height - top - bottom;
  const all = visible.flatMap(xs);
  let [from, to] = state.zoom.get(chart.id) || [Math.min(...all), Math.max(...all)];
  const log = isLog(chart) && from > 0 && to > from;
  if (!log && !state.zoom.has(chart.id) && from > 0 && from < .2 * to) from = 0;
  const share = x => !(to > from) ? .5 : log ? Math.log(x / from) / Math.log(to / from) : (x - from) / (to - from);
  const px = x => left + 6 + (w - 12) * share(x), py = y => top + h * (1 - (steep ? Math.log(Math.max(y, low / 10) / low) / Math.log(high / low) : (y - low) / (high - low)));
  const back = p => { const t = (p - left - 6) / (w - 12); return log ? from * (to / from) ** t : from + t * (to - from); };
  const root = plot.root, id = `j-${chart.id}`;
  if (!isPanel(chart)) root.append(text(2, 13, cut(chart.title, width - 4)));
  root.append(svg("clipPath", {id}, svg("rect", {x: left, y: top, width: w, height: h})));
  for (const v of ticks) root.append(path(`M${left} ${py(v)}h${w}`, "g"), text(left - 6, py(v) + 4, plain(v), "t", "end"));
  let end = 0;
  for (const v of (log ? logTicks : niceTicks)(from, to, Math.max(2, Math.floor(w / 76)))) {
    const label = amount(axis, v), half = widthOf(label) / 2, centre = Math.min(Math.max(px(v), half + 1), width - half - 1);
    root.append(path(`M${px(v)} ${top + h}v4`, "x"));
    if (centre - half < end + 8) continue;
    root.append(text(centre, top + h + 17, label, "t", "middle"));
    end = centre + half;
  }
  root.append(text(left + w / 2, top + h + 34, cut((small ? data.short : data.labels)[axis] + (log ? ", log scale" : ""), w), "t", "middle"));
  const inner = svg("g", {"clip-path": `url(#${id})`});
  for (const [, value, half] of chart.levels) {
    if (half) inner.append(path(`M${left} ${py(value + half)}h${w}V${py(value - half)}h${-w}z`, "u"));
    inner.append(path(`M${left} ${py(value)}h${w}`, "v"));
  }
  const line = (x, y) => "M" + y.map((v, i) => v === null ? "" : `${px(x[i]).toFixed(1)} ${py(v).toFixed(1)}`).filter(Boolean).join("L");
  for (const s of [...visible].reverse()) {
    const x = xs(s), g = svg("g", {class: classOf(s)}), banded = s.y.map((_, i) => i).filter(i => s.h[i] !== null);
    if (state.seeds) for (const row of Object.values(s.s)) g.append(path(line(x, row), "seed"));
    else if (banded.length > 1) g.append(path("M" + [...banded.map(i => `${px(x[i]).toFixed(1)} ${py(s.y[i] + s.h[i]).toFixed(1)}`), ...banded.reverse().map(i => `${px(x[i]).toFixed(1)} ${py(s.y[i] - s.h[i]).toFixed(1)}`)].join("L") + "z", "b"));
    g.append(path(line(x, s.y), "l"));
    if (x.length <= 16 && !isPanel(chart)) x.forEach((v, i) => g.append(svg("circle", {cx: px(v), cy: py(s.y[i]), r: i < x.length - 1 ? 2.6 : 3.8, class: "m"})));
    inner.append(g);
  }
  root.append(inner);
  const ends = [...named.map(s => py(Math.min(Math.max(s.y[s.y.length - 1], low), high))), ...levels.map(l => py(l[1]))];
  spread(ends, top + 6, top + h).forEach((y, i) => root.append(i < named.length
    ? svg("g", {class: classOf(named[i])}, text(left + w + 8, y + 4, titles[i], "n")) : text(left + w + 8, y + 4, titles[i])));
  const stops = []; // places to read at: points of different lines that stand side by side are one place
  for (const x of visible.flatMap(xs).sort((a, b) => a - b)) if (x >= from && x <= to && (!stops.length || px(x) - px(stops[stops.length - 1]) > 6)) stops.push(x);
  plot.read = stop => {
    const x = stops[stop], rows = visible.map(s => {
      const near = xs(s).reduce((best, v, i) => Math.abs(share(v) - share(x)) < Math.abs(share(xs(s)[best]) - share(x)) ? i : best, 0);
      return Math.abs(px(xs(s)[near]) - px(x)) < 14 ? [s, s.y[near], s.h[near], (s.m || [])[near]] : null;
    }).filter(Boolean).sort((a, b) => b[1] - a[1]);
    const mark = rows.map(r => r[3]).find(Boolean);
    return {head: `${amount(axis, x)} ${data.short[axis]}${mark ? ` (${mark})` : ""}`, rows, x: px(x), y: top, line: `M${px(x)} ${top}v${h}`};
  };
  plot.stops = stops.length;
  plot.values = stops;
  plot.nearest = (mx) => stops.reduce((best, x, i) => Math.abs(px(x) - mx) < Math.abs(px(stops[best]) - mx) ? i : best, 0);
  plot.range = (a, b) => [back(Math.max(left + 6, Math.min(a, b))), back(Math.min(left + w - 6, Math.max(a, b)))];
  plot.box = [left, top, w, h];
};

const drawForest = (plot, chart, width) => {
  const visible = chart.series.filter(s => !state.off.has(s.a)), small = width < 480, pitch = visible.length > 16 ? 19 : small ? 22 : 26;
  const titles = visible.map(s => cut(s.t, width * (small ? .48 : .38))), values = visible.map(s => estimate(s.y[0], s.h[0]));
  const left = 12 + Math.max(0, ...titles.map(widthOf)), right = small ? 14 : 14 + Math.max(0, ...values.map(widthOf)), w = width - left - right;
  const [low, high] = limits(chart, visible), px = v => left + w * (Math.min(Math.max(v, low), high) - low) / (high - low);
  const taken = [], heads = [];
  chart.levels.map((l, i) => [l, i]).sort((a, b) => a[0][1] - b[0][1]).forEach(([level, i]) => {
    const label = `${level[0]} ${minus(level[1].toFixed(1))}`, half = widthOf(label) / 2;
    const centre = Math.min(Math.max(px(level[1]), half + 2), Math.max(half + 2, left + w - half));
    let row = taken.findIndex(stop => centre - half > stop + 8);
    if (row < 0) row = taken.length;
    taken[row] = centre + half;
    heads[i] = [centre, row, label];
  });
  const top = 8 + 15 * taken.length, end = top + visible.length * pitch, root = plot.root;
  for (const v of niceTicks(low, high, Math.max(2, Math.floor(w / 45)))) root.append(path(`M${px(v)} ${top}V${end}`, "g"), text(px(v), end + 16, plain(v), "t", "middle"));
  const label = cut(chart.title, width - 20);
  root.append(text(Math.min(left + w / 2, width - widthOf(label) / 2 - 2), end + 33, label, "t", "middle"));
  chart.levels.forEach(([, value, half], i) => {
    if (half) root.append(path(`M${px(value - half)} ${top}H${px(value + half)}V${end}H${px(value - half)}z`, "u"));
    root.append(path(`M${px(value)} ${top}V${end}`, "v"), text(heads[i][0], 14 + 15 * heads[i][1], heads[i][2], "t", "middle"));
  });
  visible.forEach((s, i) => {
    const y = top + (i + .5) * pitch, g = svg("g", {class: classOf(s)}), [mean] = s.y, [half] = s.h;
    for (const row of Object.values(s.s)) for (const v of row) if (v !== null) g.append(path(`M${px(v)} ${y - 7}v4`, "s"));
    if (half !== null) g.append(path(`M${px(mean - half)} ${y}H${px(mean + half)}`, "i"));
    g.append(svg("circle", {cx: px(mean), cy: y, r: 4.5, class: "m"}));
    root.append(text(left - 10, y + 4, titles[i], "n0", "end"), g);
    if (!small) root.append(text(width - 2, y + 4, values[i], "t", "end"));
  });
  plot.stops = visible.length;
  plot.read = i => ({head: visible[i].t, rows: [], x: px(visible[i].y[0]), y: top + (i + .5) * pitch, line: `M${left} ${top + (i + .5) * pitch}h${w}`,
    facts: [estimate(visible[i].y[0], visible[i].h[0]), ...Object.entries(visible[i].s).slice(0, 12).map(([seed, [v]]) => v === null ? "" : `${seed}: ${minus(v.toFixed(2))}`)]});
  plot.nearest = (mx, my) => Math.min(visible.length - 1, Math.max(0, Math.floor((my - top) / pitch)));
  plot.range = null;
  return Math.round(end + 42);
};

const draw = plot => {
  const chart = charts.get(plot.id), width = Math.round(plot.area.clientWidth);
  if (width < 40) return;
  const height = isPanel(chart) ? 210 : width < 480 ? 225 : 400;
  plot.root = svg("svg", {role: "img", "aria-label": `${chart.title}, ${chart.kind === "forest" ? "means and intervals" : "against " + data.labels[axisOf(chart)]}`});
  const any = chart.series.some(s => !state.off.has(s.a));
  const tall = !any ? height : chart.kind === "forest" ? drawForest(plot, chart, width) : (drawLines(plot, chart, width, height), height);
  if (!any) plot.stops = 0;
  plot.root.setAttribute("viewBox", `0 0 ${width} ${tall}`);
  plot.root.setAttribute("width", width);
  plot.root.setAttribute("height", tall);
  plot.area.replaceChildren(plot.root);
  plot.reset.hidden = !state.zoom.has(plot.id);
  plot.width = width;
  plot.at = -1;
};
const drawAll = () => plots.forEach(draw);

// One cursor for all figures of a group: the others show the same amount, without a box of values.
const shareCursor = plot => {
  const group = groupOf(charts.get(plot.id)), x = plot.values?.[plot.at];
  for (const other of plots) if (other !== plot && other.values && groupOf(charts.get(other.id)) === group) {
    other.cursor?.remove();
    if (x === undefined || !other.stops) continue;
    const near = other.values.reduce((best, v, i) => Math.abs(v - x) < Math.abs(other.values[best] - x) ? i : best, 0);
    other.cursor = path(other.read(near).line, "cursor");
    other.root.append(other.cursor);
  }
};
const show = (plot, at, say) => {
  plot.tip?.remove(); plot.cursor?.remove();
  plot.at = at;
  shareCursor(plot);
  if (at < 0 || at >= plot.stops) { if (say) plot.live.textContent = ""; return; }
  const values = plot.read(at);
  plot.cursor = path(values.line, "cursor");
  plot.root.append(plot.cursor);
  plot.tip = make("div", {class: "tip", "aria-hidden": "true"}, make("b", {}, values.head));
  for (const [s, mean, half] of values.rows.slice(0, 14)) plot.tip.append(make("div", {}, make("i", {class: `dot ${classOf(s)}`}), `${s.t}  ${estimate(mean, half)}`));
  for (const fact of values.facts || []) plot.tip.append(make("div", {}, fact));
  plot.area.append(plot.tip);
  const wide = plot.tip.offsetWidth, x = values.x + 14 + wide > plot.width ? values.x - wide - 14 : values.x + 14;
  plot.tip.style.left = `${Math.max(0, Math.min(x, plot.width - wide))}px`;
  plot.tip.style.top = `${values.y + 4}px`;
  if (say) plot.live.textContent = [values.head, ...values.rows.map(([s, m, h]) => `${s.t} ${estimate(m, h)}`), ...(values.facts || [])].join("; ");
};

const download = (name, url) => make("a", {href: url, download: name}).click();
const standalone = plot => {
  plot.cursor?.remove(); plot.tip?.remove();
  const copy = plot.root.cloneNode(true), from = [plot.root, ...plot.root.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const key of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "font-family"]) to[i].setAttribute(key, style.getPropertyValue(key));
    to[i].removeAttribute("class");
  });
  const chart = charts.get(plot.id), above = isPanel(chart) ? 22 : 0, [width, height] = ["width", "height"].map(side => Number(copy.getAttribute(side)));
  const font = getComputedStyle(plot.area).fontFamily, fill = getComputedStyle(document.body).color;
  if (above) copy.prepend(svg("text", {x: 2, y: -8, "font-size": "12px", "font-weight": 600, "font-family": font, fill}, chart.title));
  copy.prepend(svg("title", {}, chart.title), svg("rect", {y: -above, width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor}));
  copy.setAttribute("viewBox", `0 ${-above} ${width} ${height + above}`);
  copy.setAttribute("height", height + above);
  copy.setAttribute("xmlns", NS);
  return new XMLSerializer().serializeToString(copy);
};
const saveSvg = plot => download(`${plot.id}.svg`, URL.createObjectURL(new Blob([standalone(plot)], {type: "image/svg+xml"})));
const savePng = plot => {
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas", {width: 3 * image.width, height: 3 * image.height}), context = canvas.getContext("2d");
    context.scale(3, 3);
    context.drawImage(image, 0, 0);
    canvas.toBlob(blob => download(`${plot.id}.png`, URL.createObjectURL(blob)), "image/png");
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(standalone(plot));
};

const controls = (group, chart, redraw) => {
  const bar = make("div", {class: "tools"});
  if (chart.axes.length > 1) {
    const select = make("select", {"aria-label": "axis"}, ...chart.axes.map(axis => make("option", {value: axis, selected: axis === axisOf(chart) ? "" : undefined}, data.short[axis])));
    select.addEventListener("change", () => { state.axis.set(group, select.value); state.zoom.clear(); remember(); redraw(); });
    bar.append("against", select);
  }
  if (chart.kind === "lines") {
    const log = button(group === "curves" ? "log x" : "log", node => { state.log.set(group, !isLog(chart)); remember(); node.setAttribute("aria-pressed", isLog(chart)); redraw(); }, {"aria-pressed": isLog(chart)});
    if (group === "curves") {
      const weight = make("select", {"aria-label": "smoothing"}, ...[0, .6, .9, .97].map(w => make("option", {value: w, selected: w === (state.smooth.get(group) || 0) ? "" : undefined}, w ? `smooth ${w}` : "as logged")));
      weight.addEventListener("change", () => { state.smooth.set(group, Number(weight.value)); remember(); redraw(); });
      bar.append(weight, button("log y", node => { state.high.set(group, !state.high.get(group)); remember(); node.setAttribute("aria-pressed", state.high.get(group)); redraw(); }, {"aria-pressed": Boolean(state.high.get(group))}));
    }
    bar.append(log, button("seeds", node => {
      state.seeds = !state.seeds;
      remember();
      document.querySelectorAll("button.seeds").forEach(each => each.setAttribute("aria-pressed", state.seeds));
      drawAll();
    }, {class: "seeds", "aria-pressed": state.seeds, title: "the line of each seed in place of the band"}));
  }
  return bar;
};

const plotIn = figure => {
  const chart = charts.get(figure.dataset.chart);
  if (!chart) return;
  const area = make("div", {class: "plot", tabindex: "0", role: "group", "aria-label": `${chart.title}: arrow keys read the values${chart.kind === "lines" ? ", plus and minus zoom" : ""}`});
  const plot = {id: chart.id, area, live: make("div", {class: "away", "aria-live": "polite"}), at: -1, stops: 0};
  const caption = figure.querySelector("figcaption");
  const reset = button("reset zoom", () => { state.zoom.delete(plot.id); remember(); draw(plot); });
  plot.reset = reset;
  const zoom = range => { state.zoom.set(plot.id, range); remember(); draw(plot); };
  const bar = isPanel(chart) ? make("div", {class: "tools"}) : controls(plot.id, chart, () => draw(plot));
  bar.append(button("SVG", () => saveSvg(plot)), button("PNG", () => savePng(plot)), reset);
  area.append(...[...figure.children].filter(child => child !== caption)); // shown until it is drawn, as on paper where it is folded
  figure.replaceChildren(area, bar, plot.live, ...(caption ? [caption] : []));
  const place = event => { const box = plot.root.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  let start = null, band = null;
  area.addEventListener("pointermove", event => {
    if (!plot.stops) return;
    const [x, y] = place(event);
    if (start !== null && plot.range && Math.abs(x - start) > 6) {
      band?.remove();
      band = svg("rect", {class: "zoom", x: Math.min(x, start), y: plot.box[1], width: Math.abs(x - start), height: plot.box[3]});
      plot.root.append(band);
    } else show(plot, plot.nearest(x, y), false);
  });
  area.addEventListener("pointerdown", event => {
    if (event.pointerType === "mouse") start = place(event)[0];
    else if (plot.stops) show(plot, plot.nearest(...place(event)), false);
  });
  area.addEventListener("pointerup", event => {
    const [x] = place(event);
    if (start !== null && plot.range && Math.abs(x - start) > 12) zoom(plot.range(start, x));
    start = null; band?.remove();
  });
  area.addEventListener("pointerleave", event => { start = null; band?.remove(); if (event.pointerType === "mouse") show(plot, -1, false); });
  area.addEventListener("dblclick", () => reset.click());
  area.addEventListener("blur", () => show(plot, -1, true));
  area.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -plot.stops, End: plot.stops}[event.key];
    if (step && plot.stops) { show(plot, Math.min(plot.stops - 1, Math.max(0, plot.at + step)), true); event.preventDefault(); }
    else if (event.key === "Escape") show(plot, -1, true);
    else if (plot.range && (event.key === "+" || event.key === "-")) {
      const [left, , w] = plot.box, at = plot.at < 0 ? left + w / 2 : plot.read(plot.at).x;
      if (event.key === "-") reset.click(); else zoom(plot.range(at - w / 4, at + w / 4));
    }
  });
  plots.push(plot);
  new ResizeObserver(() => { if (Math.round(area.clientWidth) !== plot.width) draw(plot); }).observe(area);
};
document.querySelectorAll("figure[data-chart]").forEach(plotIn);
const curve = data.charts.find(isPanel), panels = document.querySelector("#curves > .panels");
if (curve && panels) panels.before(controls("curves", curve, () => plots.filter(isPanel).forEach(draw)));

// -- arms on and off, in all figures
const toggle = arm => {
  state.off.has(arm) ? state.off.delete(arm) : state.off.add(arm);
  remember();
  shade();
  drawAll();
};
const shade = () => {
  document.querySelectorAll("[data-arm]").forEach(node => {
    const off = state.off.has(Number(node.dataset.arm));
    node.classList.toggle("off", off);
    (node.matches(".key") ? node : node.querySelector("button"))?.setAttribute("aria-pressed", !off);
  });
};
document.querySelectorAll(".key[data-arm]").forEach(node => {
  for (const [key, value] of [["role", "button"], ["tabindex", "0"], ["aria-pressed", "true"], ["title", "show or hide in all figures"]]) node.setAttribute(key, value);
  node.addEventListener("click", () => toggle(Number(node.dataset.arm)));
  node.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { toggle(Number(node.dataset.arm)); event.preventDefault(); } });
});
document.querySelectorAll(".short tr[data-arm] th").forEach(head => {
  const node = make("button", {type: "button", "aria-pressed": "true", title: "show or hide in all figures"}, ...head.childNodes);
  node.addEventListener("click", () => toggle(Number(head.parentNode.dataset.arm)));
  head.append(node);
});

shade();

// -- tables
const clean = node => node.textContent.replace(/\s+/g, " ").trim();
const heads = table => [...table.tHead.rows[0].cells];
const shown = table => [...table.tBodies[0].rows].filter(row => !row.hidden);
const drawn = table => heads(table).map((head, i) => !head.classList.contains("b") && i).filter(i => i !== false);
const cells = (table, read) => [drawn(table).map(i => clean(heads(table)[i])), ...shown(table).map(row => drawn(table).map(i => row.cells[i] ? read(row.cells[i]) : ""))];
const formats = {
  CSV: table => {
    const columns = drawn(table), halves = columns.filter(i => shown(table).some(row => row.cells[i]?.dataset.h));
    const quote = value => /[",\n]/.test(value) ? `"${value.replace(/"/g, '""')}"` : /^[=+\-@]/.test(value) && isNaN(value) ? `'${value}` : value;
    const row = read => columns.flatMap(i => halves.includes(i) ? [read(i, false), read(i, true)] : [read(i, false)]).map(quote).join(",");
    return [row((i, half) => clean(heads(table)[i]) + (half ? " half width" : "")), ...shown(table).map(line => row((i, half) => half ? line.cells[i]?.dataset.h || "" : line.cells[i]?.dataset.v || (line.cells[i] ? clean(line.cells[i]).replace(/^–$/, "") : "")))].join("\n") + "\n";
  },
  Markdown: table => {
    const [head, ...rows] = cells(table, clean), line = row => `| ${row.map(cell => cell.replace(/\|/g, "\\|")).join(" | ")} |`;
    return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n") + "\n";
  },
  LaTeX: table => {
    const escape = cell => cell.replace(/[\\&%$#_{}~^]/g, c => ({"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}[c] || `\\${c}`)).replace(/±/g, "$\\pm$").replace(/\u2212/g, "$-$").replace(/×10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)/g, (_, e) => `$\\times10^{${[...e].map(c => "0123456789-"["⁰¹²³⁴⁵⁶⁷⁸⁹⁻".indexOf(c)]).join("")}}$`).replace(/×/g, "$\\times$").replace(/–/g, "--").replace(/</g, "$<$");
    const [head, ...rows] = cells(table, clean).map(row => row.map(escape)), columns = drawn(table).map(i => heads(table)[i].classList.contains("n") ? "r" : "l").join("");
    return [`\\begin{tabular}{${columns}}`, "\\toprule", head.join(" & ") + " \\\\", "\\midrule", ...rows.map(row => row.join(" & ") + " \\\\"), "\\bottomrule", "\\end{tabular}"].join("\n") + "\n";
  },
};
const copy = async (content, node) => {
  try { await navigator.clipboard.writeText(content); }
  catch {
    const area = make("textarea");
    area.value = content;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = node.textContent;
  node.textContent = "copied";
  setTimeout(() => { node.textContent = label; }, 1200);
};
const valueOf = cell => { const v = cell?.dataset.v ?? (cell ? clean(cell) : ""); return v === "" || v === "–" ? null : isNaN(v) ? v : Number(v); };
document.querySelectorAll("table.data").forEach(table => {
  const bar = make("div", {class: "tools"});
  if (table.tBodies[0].rows.length > 8) {
    const input = make("input", {type: "search", placeholder: "filter", "aria-label": `filter ${table.dataset.name}`});
    input.addEventListener("input", () => { const words = input.value.toLowerCase().split(/\s+/); for (const row of table.tBodies[0].rows) { const content = row.textContent.toLowerCase(); row.hidden = !words.every(word => content.includes(word)); } });
    bar.append(input);
  }
  bar.append("copy as", ...Object.keys(formats).map(name => button(name, node => copy(formats[name](table), node), {"aria-label": `copy ${table.dataset.name} as ${name}`})));
  (table.caption ?? table.createCaption()).append(bar);
  if (table.tBodies[0].rows.length > 1) heads(table).forEach((head, i) => {
    if (head.classList.contains("b")) return;
    const sort = () => {
      const up = head.getAttribute("aria-sort") === "descending", sign = up ? 1 : -1;
      heads(table).forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map(row => [valueOf(row.cells[i]), row]);
      rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true})));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    };
    head.append(" ", button("", sort, {class: "sort", "aria-label": `sort by ${clean(head)}`}));
  });
});

// -- links into folded parts, and the place in the contents
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", unfold);
unfold();
const links = new Map([...document.querySelectorAll("nav a[href^='#']")].map(link => [link.getAttribute("href").slice(1), link]));
const here = id => links.forEach((link, each) => { if (each === id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current"); });
const seen = new IntersectionObserver(entries => entries.forEach(entry => { if (entry.isIntersecting) here(entry.target.id); }), {rootMargin: "-15% 0px -75% 0px"});
here([...links.keys()][0]);
links.forEach((_, id) => { const section = document.getElementById(id); if (section) seen.observe(section); });
};
drawReport();
