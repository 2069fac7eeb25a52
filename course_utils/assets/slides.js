// Slides of 1280 x 720 from the sections of a lesson: what a slide cannot hold goes on upon the next, below its heading.
"use strict";
const ROOM = 684; // where the content of a slide ends, in pixels from its top
const HEADING = /^H\d$/;
const blank = (element) => !element.getClientRects().length || element.matches("aside, colgroup, .anchor-link, .jp-Collapser");
const bottomOf = (element) => element.getBoundingClientRect().bottom;

// What is not divided, in the order of the page: paragraphs, items, rows, pictures, pieces of code.
function atoms(element) {
  const inner = [...element.children].filter((child) => !blank(child));
  const divided = /^(SECTION|DIV|UL|OL|DETAILS|TABLE|THEAD|TBODY)$/.test(element.tagName) && inner.length;
  return divided ? inner.flatMap(atoms) : [element];
}

const isHeading = (atom) => HEADING.test(atom.tagName) || atom.matches(".goes-on, summary, thead *");
const endOf = (section) => section.getBoundingClientRect().top + ROOM;
const fits = (section) => atoms(section).every((atom) => bottomOf(atom) <= endOf(section));

// The place behind the last line of code or text that ends above `end`, rather behind an empty one, as [node, offset].
function lastLine(pre, end) {
  const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT), range = document.createRange();
  const top = pre.getBoundingClientRect().top;
  let found = null, blankLine = null;
  range.setStart(pre, 0);
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (let at = node.data.indexOf("\n"); at >= 0; at = node.data.indexOf("\n", at + 1)) {
      range.setEnd(node, at);
      const bottom = bottomOf(range);
      if (bottom > end) return blankLine ?? found;
      found = [node, at + 1];
      if (bottom > (top + 2 * end) / 3 && range.toString().endsWith("\n")) blankLine = found;
    }
  return null; // all of it ends above
}

// Where a slide that is too full is divided, as [node, offset] for a range; null where it cannot be.
function findBreak(section) {
  const all = atoms(section), first = all.findIndex((atom) => !isHeading(atom)), end = endOf(section);
  let at = all.findIndex((atom) => bottomOf(atom) > end);
  const atom = all[at], cell = atom.closest(".jp-CodeCell"), input = atom.closest(".jp-Cell-inputWrapper");
  const room = ROOM - (bottomOf(all[Math.max(first - 1, 0)]) - section.getBoundingClientRect().top);
  const cellHeight = cell ? bottomOf(cell) - cell.getBoundingClientRect().top : 0;
  const long = atom.matches("pre") && atom.getBoundingClientRect().height > room - 20;
  if (long && (at === first || !(cell && input))) {
    const line = lastLine(atom, end - 8);
    if (line) return line;
  }
  if (at > first && cell && (input || cellHeight <= room)) at = all.findIndex((each) => cell.contains(each)); // code and output stay together
  const unit = cell && at < all.length && cell.contains(all[at]) ? cellHeight : bottomOf(all[at]) - all[at].getBoundingClientRect().top;
  let before = at; // a heading, and a sentence with a colon, stay with what follows
  while (before > first && (isHeading(all[before - 1]) || /:\s*$/.test(all[before - 1].textContent))) before -= 1;
  const tall = unit + all[at].getBoundingClientRect().top - all[before].getBoundingClientRect().top;
  if (before > first && tall <= room) at = before;
  if (at <= first) return null;
  let start = all[at];
  while (start.parentNode !== section && ![...start.parentNode.children].some((each) => each !== start && !blank(each) &&
    each.compareDocumentPosition(start) & Node.DOCUMENT_POSITION_FOLLOWING)) start = start.parentNode;
  return [start.parentNode, [...start.parentNode.childNodes].indexOf(start)];
}

const heightOf = (element) => element.getBoundingClientRect().height;
const picturesOf = (section) => [...section.querySelectorAll("img, svg:not(svg svg)")].filter((each) => !blank(each));

// A single picture takes the room that is left, up to twice its size; the tallest of a slide that is too full gives way.
function sizePicture(section) {
  const [picture, other] = picturesOf(section).sort((a, b) => heightOf(b) - heightOf(a));
  const free = endOf(section) - Math.max(...atoms(section).map(bottomOf));
  if (!picture || (free > 0 && other)) return;
  const before = picture.style.cssText, { width, height } = picture.getBoundingClientRect();
  const wider = picture.closest(".jp-OutputArea-output, .jp-RenderedMarkdown").clientWidth / width;
  const wanted = `${Math.floor(Math.min(height + free - 2, height * Math.min(wider, 2)))}px`;
  Object.assign(picture.style, { height: wanted, maxHeight: wanted, width: "auto", maxWidth: "100%" });
  if (free > 0 && !fits(section)) picture.style.cssText = before;
}

// Where long code leaves its one picture less than half of the width and two thirds of the height: between the two.
function findCramped(section) {
  const [picture, other] = picturesOf(section), output = picture?.closest(".jp-CodeCell > .jp-Cell-outputWrapper");
  const code = output?.parentNode.querySelector(":scope > .jp-Cell-inputWrapper");
  if (other || !code || blank(code) || heightOf(code) < 190 || heightOf(picture) > ROOM * 2 / 3) return null;
  if (picture.getBoundingClientRect().width > picture.closest("section").clientWidth / 2) return null;
  return [output.parentNode, [...output.parentNode.childNodes].indexOf(output)];
}

// Move what is behind the place into a new slide, with the heading, and what a table, list or fold begins with.
function divide(section, place) {
  const heading = [...section.querySelectorAll("h1, h2, h3, .goes-on")], range = document.createRange();
  const lists = [...section.querySelectorAll("ol")], items = lists.map((list) => list.children.length);
  range.setStart(...place);
  range.setEnd(section, section.childNodes.length);
  const rest = document.createElement("section"), parts = range.extractContents();
  const last = heading.filter((each) => section.contains(each)).pop();
  if (last) {
    const again = rest.appendChild(document.createElement("p"));
    again.className = "goes-on";
    again.textContent = last.textContent.replace("¶", "");
  }
  rest.append(parts);
  rest.querySelectorAll("[id]").forEach((each) => { if (document.getElementById(each.id)) each.removeAttribute("id"); });
  section.after(rest);
  const lastOf = (name) => [...section.querySelectorAll(name)].pop();
  const fold = rest.querySelector("details"), table = rest.querySelector("table"), list = rest.querySelector("ol");
  if (fold && !fold.querySelector("summary")) fold.prepend(lastOf("summary").cloneNode(true));
  if (table && !table.querySelector("thead") && lastOf("thead")) table.prepend(lastOf("thead").cloneNode(true));
  lists.forEach((each, number) => {
    if (list && section.contains(each) && each.children.length < items[number]) list.start = each.start + each.children.length;
  });
  return rest;
}

function lay(section) {
  if (!fits(section)) section.classList.add("tight");
  let place = fits(section) ? null : findBreak(section);
  if (!place) {
    sizePicture(section);
    place = findCramped(section);
  }
  if (place) {
    const notes = [...section.querySelectorAll("aside")], rest = divide(section, place);
    for (const part of [section, rest]) // either part has notes of its own, or all of them
      if (!part.querySelector("aside")) notes.forEach((each) => part.append(each.cloneNode(true)));
    section.classList.remove("tight");
    section.classList.toggle("tight", !fits(section));
    lay(rest);
  }
  if (place) sizePicture(section);
}

window.addEventListener("load", () => {
  const reveal = document.querySelector(".reveal");
  reveal.classList.add("laying");
  reveal.querySelectorAll(".slides > section > section").forEach(lay);
  reveal.classList.remove("laying");
  Reveal.initialize({ width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t",
    transition: "none", controlsTutorial: false, plugins: [RevealNotes] });
});
