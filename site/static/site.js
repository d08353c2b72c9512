// An excerpt in the search's results is of the article: without the path of pages above it.
if (typeof Search !== "undefined")
  Search.htmlToText = (text, anchor) => {
    const article = new DOMParser().parseFromString(text, "text/html").querySelector("article");
    for (const element of article?.querySelectorAll(".headerlink, script, style, h1") ?? [])
      element.remove();
    const place = anchor ? article?.querySelector(`#${CSS.escape(anchor.slice(1))}`) : null;
    return (place?.closest("section") ?? article)?.textContent ?? "";
  };

// The arrows in the left column have no words of their own.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll("summary:has(> .toctree-toggle)"))
    arrow.ariaLabel = `Pages of ${arrow.closest("li").querySelector("a").textContent.trim()}`;
});
