// Diagrams are pictures in the colours of the theme in which they were drawn: draw them again.
export default ({ themes, mermaid, tracker }) => {
  themes?.themeChanged.connect(() => {
    tracker.forEach(panel => {
      for (const diagram of panel.content.node.querySelectorAll(".jp-RenderedMermaid figure")) redraw(diagram);
    });
  });
  const redraw = async diagram => {
    const { svg } = await mermaid.renderSvg(diagram.querySelector(".mermaid").textContent);
    diagram.querySelector("img").src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  };
};
