// Faults of a laid out page: texts that overlap or are cut, too little contrast in figures; and what the first screen holds.
() => {
  const faults = [], luminance = colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const back = luminance(getComputedStyle(document.body).backgroundColor);
  const overlap = (a, b, x, y) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > x && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > y;
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const boxes = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect(), t]).filter(([t, b]) => t && b.width);
    boxes.forEach(([text, a, node], i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) faults.push("cut: " + text);
      const front = luminance(getComputedStyle(node).fill), ratio = (Math.max(front, back) + .05) / (Math.min(front, back) + .05);
      if (ratio < 4.5) faults.push("contrast " + ratio.toFixed(1) + ": " + text);
      for (const [other, b] of boxes.slice(i + 1)) if (overlap(a, b, 1, 3)) faults.push("overlap: " + text + " | " + other);
    });
  }
  for (const node of document.querySelectorAll("h1, h2, h3, p, li, td, th, dt, dd, caption, summary, button, a, figcaption, .chart"))
    if ((node.scrollWidth > node.clientWidth + 2 || node.scrollHeight > node.clientHeight + 6) && node.clientWidth && getComputedStyle(node).display !== "inline" && !node.closest("nav") && !node.matches(".away *, .short th")) faults.push("cut: " + node.textContent.slice(0, 60));

  // Texts outside of figures, by their lines. The part of a wide table that its frame hides overlaps nothing.
  const lines = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("svg, script, option, nav, .away") || !parent.checkVisibility()) continue;
    const frame = parent.closest(".scroll")?.getBoundingClientRect();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || (frame && (box.right > frame.right || box.left < frame.left))) continue;
      if (!frame && box.right > innerWidth + 1 && !parent.closest("pre")) faults.push("beyond the page: " + node.data.slice(0, 60));
      lines.push([box, node.data.trim().slice(0, 40)]);
    }
  }
  lines.sort(([a], [b]) => a.top - b.top);
  lines.forEach(([a, text], i) => {
    for (let k = i + 1; k < lines.length && lines[k][0].top < a.bottom - 6; k++) if (overlap(a, lines[k][0], 2, 6)) faults.push("overprinted: " + text + " | " + lines[k][1]);
  });

  const first = document.querySelector("#answer figure svg"), words = document.createRange();
  words.setStart(document.body, 0);
  words.setEndBefore(first.closest("figure"));
  const bottom = node => node.getBoundingClientRect().bottom, count = text => text.trim().split(/\s+/).length;
  return {
    faults, wide: document.documentElement.scrollWidth, dark: back < .2, words: count(words.toString()),
    answer: count(document.querySelector("h1").textContent),
    rows: document.querySelectorAll("#answer .two tr[data-arm]").length,
    bottoms: {
      question: bottom(document.querySelector(".question")), answer: bottom(document.querySelector("h1")), figure: bottom(first),
      table: bottom(document.querySelector("#answer .two table")), sure: bottom(document.querySelector(".sure")),
    },
  };
}
