// Slides of 1280 x 720 from the sections of a lesson: what a slide cannot hold goes on upon the next, below its heading.
"use strict";
const ROOM = 684; // where the content of a slide ends, in pixels from its top
const HEADING = /^H\d$/;
const FOUND = ":scope > :has(.celltag_found)"; // what is said of the output above it
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

const placeOf = (element) => [element.parentNode, [...element.parentNode.childNodes].indexOf(element)];

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
  const output = cell?.querySelector(":scope > .jp-Cell-outputWrapper"), code = cell && codesOf(cell)[0];
  const isShort = all[at].getBoundingClientRect().top - all[first].getBoundingClientRect().top < 150;
  if (output && code?.contains(all[at]) && isShort && bottomOf(code) <= end) return placeOf(output); // no lone sentence
  let start = all[at];
  while (start.parentNode !== section && ![...start.parentNode.children].some((each) => each !== start && !blank(each) &&
    each.compareDocumentPosition(start) & Node.DOCUMENT_POSITION_FOLLOWING)) start = start.parentNode;
  return placeOf(start);
}

const heightOf = (element) => element.getBoundingClientRect().height;
const codesOf = (element) => [...element.querySelectorAll(".jp-Editor")].filter((each) => !blank(each));
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

// A line of code that is too long goes on below, four letters further in than it began.
function indentLongLines(code) {
  code.innerHTML = code.innerHTML.split("\n").map((line) => {
    const text = line.replace(/<[^>]*>/g, ""), indent = text.search(/\S/) + 4;
    const style = `padding-left:${indent}ch;text-indent:-${indent}ch`;
    return text.length < 80 ? line : `<span class="long" style="${style}">${line}</span>`;
  }).join("\n");
}

// Without code, a picture stands beside its words, if it is larger there than below them.
function setBeside(section) {
  const order = [...section.children], [picture, other] = picturesOf(section), shown = picture?.closest("section > *");
  const codes = [...section.querySelectorAll(".highlight, table")].filter((each) => !blank(each));
  if (!picture || other || codes.length || section.querySelector(".beside")) return;
  const heading = section.querySelector("h1, h2, h3, .goes-on"), headed = heading.parentNode;
  const words = order.filter((each) => each !== shown && !blank(each));
  const before = fits(section) ? heightOf(picture) : 0, style = picture.style.cssText;
  const [columns, left, right] = [1, 2, 3].map(() => document.createElement("div"));
  columns.className = "beside";
  section.prepend(heading, columns);
  columns.append(left, right);
  left.append(...words.filter((each) => each !== heading));
  right.append(shown);
  picture.style.cssText = "";
  sizePicture(section);
  if (left.innerText.trim() && fits(section) && heightOf(picture) > before) return;
  headed.prepend(heading);
  section.replaceChildren(...order);
  picture.style.cssText = style;
}

// What a class sees one after the other: the parts of a program, what it prints, what was found.
function setSteps(section) {
  for (const cell of section.querySelectorAll(".jp-CodeCell:not(.celltag_answer)")) {
    const code = cell.querySelector(":scope > .jp-Cell-inputWrapper .highlight pre");
    if (code) {
      code.innerHTML = code.innerHTML.replace(/\n\s*\n(?=(<[^>]*>)*[^\s<])/g, "\n\n\0").split("\0")
        .map((part, place) => (place ? `<span class="fragment">${part}</span>` : part)).join("");
      cell.querySelector(":scope > .jp-Cell-outputWrapper")?.classList.add("fragment");
    }
  }
  const later = [...section.querySelectorAll(".celltag_why, .celltag_found")];
  const first = atoms(section).find((atom) => !isHeading(atom) && !blank(atom));
  later.filter((each) => !each.contains(first)).forEach((each) => each.classList.add("fragment"));
}

// Where code leaves its one picture less than half of the width and two thirds of the height, because it is long or the
// picture would have to shrink: between the two.
function findCramped(section) {
  const [picture, other] = picturesOf(section), code = codesOf(section);
  if (other || !picture || !code.length) return null;
  const { width, height } = picture.getBoundingClientRect();
  const isLong = code.reduce((sum, each) => sum + heightOf(each), 0) >= 190;
  if (!isLong && !(width < 0.75 * picture.naturalWidth)) return null; // an SVG in the page has no such width
  if (height > ROOM * 2 / 3 || width > section.clientWidth / 2) return null;
  const cell = picture.closest("section > *");
  return placeOf(cell.contains(code.at(-1)) ? picture.closest(".jp-Cell-outputWrapper") : cell);
}

// What was found takes the output along, where not all of it fits below the code; without code, it follows its picture.
function findFound(section) {
  const found = section.querySelector(FOUND), cell = [...section.querySelectorAll(":scope > .jp-CodeCell")].pop();
  if (!found || !cell || !(cell.compareDocumentPosition(found) & Node.DOCUMENT_POSITION_FOLLOWING)) return null;
  if (!codesOf(section).length) return picturesOf(section).length === 1 ? placeOf(found) : null;
  if (section.nextElementSibling?.querySelector(".goes-on")) return null;
  const part = codesOf(cell).length ? cell.querySelector(":scope > .jp-Cell-outputWrapper") : cell;
  const spare = picturesOf(part).reduce((sum, picture) => sum + Math.max(0, heightOf(picture) - 280), 0);
  return bottomOf(found) - part.getBoundingClientRect().top - spare > ROOM - 90 ? null : placeOf(part);
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
  const within = place[0].nodeType === Node.TEXT_NODE ? place[0].parentNode : place[0];
  rest.className = within.closest(".jp-OutputArea-output") ? "rest continued" : "rest";
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
  if (!fits(section)) setBeside(section);
  let place = fits(section) ? null : findFound(section) ?? findBreak(section);
  if (!place) {
    sizePicture(section);
    place = findCramped(section);
  }
  if (place) {
    const notes = [...section.querySelectorAll("aside")], rest = divide(section, place);
    for (const part of [section, rest]) // either part has notes of its own, or all of them
      if (!part.querySelector("aside")) notes.forEach((each) => part.append(each.cloneNode(true)));
    section.classList.remove("tight");
    lay(section);
    lay(rest);
  } else setBeside(section);
}

// What was found, and would stand alone on its slide, goes with the next step.
function joinFound(section) {
  const found = section.querySelector(FOUND), next = section.nextElementSibling;
  const goesOn = next?.querySelector(".goes-on"), shown = [...section.children].filter((each) => !blank(each));
  if (!found || !goesOn || shown.length > 2) return;
  goesOn.closest("section > *").after(found);
  sizePicture(next);
  if (!fits(next)) return shown[0].after(found);
  const noted = [...section.previousElementSibling.querySelectorAll("aside")].map((each) => each.textContent);
  next.append(...[...section.querySelectorAll("aside")].filter((each) => !noted.includes(each.textContent)));
  section.remove();
}

window.addEventListener("load", () => {
  const reveal = document.querySelector(".reveal");
  reveal.classList.add("laying");
  reveal.querySelectorAll("section .jp-InputArea .highlight pre").forEach(indentLongLines);
  reveal.querySelectorAll(".slides > section > section").forEach(lay);
  reveal.querySelectorAll(".slides > section > section").forEach(joinFound);
  reveal.querySelectorAll(".slides > section > section").forEach(setSteps);
  reveal.classList.toggle("in-class", location.protocol !== "file:");
  reveal.classList.remove("laying");
  Reveal.initialize({ width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t",
    transition: "none", controlsTutorial: false, plugins: [RevealNotes] });
});
