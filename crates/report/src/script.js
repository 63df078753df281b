
"use strict";
// Comforts only: everything that the page has to say is said without this script.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // Theme: the system's, unless the address (#theme=dark) or the button says otherwise.
  const isDark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const asked = /theme=(light|dark)/.exec(location.hash);
  if (asked) root.dataset.theme = asked[1];
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
  });

  // Tooltips: the marks' own titles, at once instead of after a second.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.className = "hidden";
  document.body.append(tip);
  const words = (element) => {
    const mark = element.closest("svg .mark, svg .bar, svg .disturbed");
    const title = mark && mark.querySelector(":scope > title");
    if (title) {
      mark.dataset.tip = title.textContent;
      mark.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    return mark && mark.dataset.tip;
  };
  document.addEventListener("mousemove", (event) => {
    const text = event.target instanceof Element ? words(event.target) : null;
    tip.classList.toggle("hidden", !text);
    if (!text) return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const below = event.clientY + 16;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below + box.height > innerHeight ? event.clientY - box.height - 10 : below}px`;
  });

  // Curves: a row of switches over all panels of a comparison.
  for (const panels of document.querySelectorAll(".panels")) {
    const series = new Map();
    for (const group of panels.querySelectorAll(".curve [data-series]")) {
      const label = group.querySelector(".end-label");
      if (label && !series.has(group.dataset.series)) series.set(group.dataset.series, [label.textContent, group]);
    }
    if (series.size < 2) continue;
    const legend = document.createElement("div");
    legend.className = "legend";
    for (const [place, [name, first]] of series) {
      const groups = [...panels.querySelectorAll(`.curve [data-series="${place}"]`)];
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.className = first.getAttribute("class").replace("series", "");
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const isOff = button.classList.toggle("off");
        button.setAttribute("aria-pressed", String(!isOff));
        for (const group of groups) group.classList.toggle("hidden", isOff);
      });
      const others = () => [...panels.querySelectorAll(".curve .series")].filter((g) => !groups.includes(g));
      button.addEventListener("mouseenter", () => others().forEach((g) => g.classList.add("faded")));
      button.addEventListener("mouseleave", () => others().forEach((g) => g.classList.remove("faded")));
      legend.append(button);
    }
    panels.before(legend);
  }

  // Boxes that scroll: a stop for the keyboard only where something is hidden.
  const stops = new ResizeObserver((changes) => {
    for (const { target } of changes) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  });
  document.querySelectorAll(".scroll").forEach((box) => stops.observe(box));

  // Tables: a click on a heading sorts the rows within each group.
  const key = (row, column) => {
    const cell = row.cells[column];
    const number = cell.dataset.sort;
    return number === undefined ? cell.textContent : Number(number);
  };
  const compare = (a, b) => {
    // Figures come before what is missing.
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return typeof a === "number" ? a - b : a.localeCompare(b);
  };
  for (const heading of document.querySelectorAll("thead th")) {
    heading.addEventListener("click", () => {
      const column = heading.cellIndex;
      const isDown = heading.getAttribute("aria-sort") === "ascending";
      for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      for (const body of heading.closest("table").tBodies) {
        const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
        rows.sort((a, b) => compare(key(a, column), key(b, column)) * (isDown ? -1 : 1));
        body.append(...rows);
      }
    });
  }

  // The record as a file, made only when it is asked for.
  document.getElementById("download").addEventListener("click", (event) => {
    const text = document.getElementById("record").textContent;
    const link = event.currentTarget;
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
})();
