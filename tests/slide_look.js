index => {
  Reveal.slide(index);
  const slide = Reveal.getCurrentSlide().querySelector(".slide"), frame = slide.getBoundingClientRect(), bad = [];
  const name = e => e.tagName + "." + e.className + ": " + (e.textContent || e.alt || "").trim().slice(0, 40);
  const inside = (r, f) => r.left >= f.left - 1 && r.top >= f.top - 1 && r.right <= f.right + 1 && r.bottom <= f.bottom + 1;
  const boxes = [slide, ...slide.querySelectorAll(".body, .col, pre")];
  for (const box of boxes)
    if (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1) bad.push("overflows " + name(box));
  const title = slide.querySelector("h2").getBoundingClientRect();
  const source = slide.querySelector(".source");
  const floor = source ? source.getBoundingClientRect().top : frame.bottom - 8;
  for (const e of slide.querySelectorAll("*")) {
    const r = e.getBoundingClientRect();
    if (!inside(r, frame)) bad.push("leaves the slide: " + name(e));
    if (e.closest(".body") && !e.closest(".body").isSameNode(e) && (r.top < title.bottom - 1 || r.bottom > floor + 1))
      bad.push("runs into the title or the source: " + name(e));
    const column = e.closest(".col");
    if (column && !inside(r, column.getBoundingClientRect())) bad.push("leaves its column: " + name(e));
    if (e.tagName == "IMG" && !(e.complete && e.naturalWidth > 0)) bad.push("broken picture: " + name(e));
  }
  const walker = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode(); ) {
    if (!node.textContent.trim()) continue;
    const e = node.parentElement, size = parseFloat(getComputedStyle(e).fontSize);
    const least = e.closest("pre, code, figcaption, .source") ? 20 : 24;
    if (size < least) bad.push(`${size} px, below ${least}: ` + name(e));
  }
  const text = slide.querySelector(".body").textContent.trim(), pictures = slide.querySelectorAll("img").length;
  if (!text && !pictures) bad.push("empty");
  return bad;
}
