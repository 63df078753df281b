"use strict";
// Lays pages out at several widths, each in a frame, and lists what a reader of each would stumble over.
// The frames stand in the document before it is loaded, so the browser's `load` waits for them.
((pages, widths) => {
  // Boxes of texts have room above and below the letters; only letters may not touch.
  const LEADING = 0.22;
  const SLACK_PX = 1;
  const laid = pages.map(() => ({ found: [], counted: { texts: 0, verdicts: 0, parts: 0 } }));

  const letters = (text) => {
    const box = text.getBoundingClientRect();
    const inset = box.height * LEADING;
    return {
      words: text.textContent,
      left: box.left, right: box.right, top: box.top + inset, bottom: box.bottom - inset,
    };
  };
  const touch = (a, b) =>
    a.left < b.right - SLACK_PX && b.left < a.right - SLACK_PX && a.top < b.bottom && b.top < a.bottom;
  const isShown = (element) => element.getClientRects().length > 0 && element.textContent.trim() !== "";

  const charts = (document, counted, tell) => {
    for (const svg of document.querySelectorAll("svg")) {
      if (svg.getClientRects().length === 0) continue;
      const name = svg.querySelector("title")?.textContent ?? "a chart";
      const paper = svg.getBoundingClientRect();
      const texts = [...svg.querySelectorAll("text")].filter(isShown).map(letters);
      counted.texts += texts.length;
      texts.forEach((text, index) => {
        const isOutside = text.left < paper.left - SLACK_PX || text.right > paper.right + SLACK_PX ||
          text.top < paper.top - SLACK_PX || text.bottom > paper.bottom + SLACK_PX;
        if (isOutside) tell(`"${text.words}" stands out of "${name}"`);
        for (const other of texts.slice(index + 1)) {
          if (touch(text, other)) tell(`"${text.words}" touches "${other.words}" in "${name}"`);
        }
      });
    }
  };

  // The letters of what stands beside each other: cells of a row, facts of a strip, title and badge.
  const NEIGHBOURS = "tr, .trust, .corner, .answer, .facts, header, nav";
  const lines = (document, part) => {
    const range = document.createRange();
    range.selectNodeContents(part);
    return [...range.getClientRects()].filter((box) => box.width > 0).map((box) => {
      const inset = box.height * LEADING;
      return { left: box.left, right: box.right, top: box.top + inset, bottom: box.bottom - inset };
    });
  };
  const neighbours = (document, counted, tell) => {
    for (const row of document.querySelectorAll(NEIGHBOURS)) {
      const parts = [...row.children].filter(isShown).filter((part) => !part.querySelector("svg"));
      const boxes = parts.map((part) => lines(document, part));
      counted.parts += parts.length;
      parts.forEach((part, index) => {
        for (let other = index + 1; other < parts.length; other += 1) {
          if (boxes[index].some((a) => boxes[other].some((b) => touch(a, b)))) {
            tell(`"${part.textContent}" lies over "${parts[other].textContent}"`);
          }
        }
      });
    }
  };

  const verdicts = (document, counted, width, tell) => {
    for (const word of document.querySelectorAll(".verdict, .verdict + *")) {
      if (!isShown(word)) continue;
      counted.verdicts += 1;
      const box = word.getBoundingClientRect();
      if (box.left < 0 || box.right > width + SLACK_PX) tell(`"${word.textContent}" is off the screen`);
    }
  };

  const layOut = (page, width, { found, counted }) => {
    const frame = document.createElement("iframe");
    frame.style.cssText = `border: 0; width: ${width}px; height: 900px`;
    frame.srcdoc = page;
    frame.addEventListener("load", () => {
      const inner = frame.contentDocument;
      const tell = (words) => found.push(`${width} px: ${words}`);
      for (const closed of inner.querySelectorAll("details")) closed.open = true;
      const needs = inner.documentElement.scrollWidth;
      if (needs > width) tell(`the page is ${needs} px wide`);
      charts(inner, counted, tell);
      neighbours(inner, counted, tell);
      verdicts(inner, counted, width, tell);
      frame.remove();
      document.getElementById("found").textContent = JSON.stringify(laid);
    });
    document.body.append(frame);
  };
  pages.forEach((page, number) => widths.forEach((width) => layOut(page, width, laid[number])));
})(PAGES, WIDTHS);
