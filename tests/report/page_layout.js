// Faults of a laid out page: texts of figures that overlap or are cut, too little contrast, elements that are cut.
const faults = [], luminance = colour => {
  const [r, g, b] = colour.match(/[\d.]+/g).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
  return .2126 * r + .7152 * g + .0722 * b;
};
const back = luminance(win.getComputedStyle(doc.body).backgroundColor);
for (const svg of doc.querySelectorAll("svg")) {
  const frame = svg.getBoundingClientRect();
  if (!frame.width) continue;
  const boxes = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect(), t]).filter(([t, b]) => t && b.width);
  boxes.forEach(([text, a, node], i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) faults.push("cut: " + text);
    const front = luminance(win.getComputedStyle(node).fill), ratio = (Math.max(front, back) + .05) / (Math.min(front, back) + .05);
    if (ratio < 4.5) faults.push("contrast " + ratio.toFixed(1) + ": " + text);
    for (const [other, b] of boxes.slice(i + 1))
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) faults.push("overlap: " + text + " | " + other);
  });
}
for (const node of doc.querySelectorAll("h1, h2, p, li, td, th, dd, button, .chart"))
  if (node.scrollWidth > node.clientWidth + 2 && node.clientWidth && win.getComputedStyle(node).display !== "inline" && !node.closest("nav") && !node.matches(".away *, .short th")) faults.push("cut: " + node.textContent.slice(0, 60));
const first = doc.querySelector("#answer figure svg").getBoundingClientRect();
return {faults, wide: doc.documentElement.scrollWidth, figure: first.top, sure: doc.querySelector(".sure").getBoundingClientRect().bottom, dark: back < .2};
