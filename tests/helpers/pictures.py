"""What the tests of several rooms of pictures share."""


def assert_nothing_is_cut_off(figure, margin):
    """All that the figure draws lies on its page. margin: inches that it may stand out."""
    figure.canvas.draw()
    drawn, page = figure.get_tightbbox(), figure.bbox_inches.padded(margin)
    assert page.x0 <= drawn.x0 and drawn.x1 <= page.x1, (
        f"drawn {drawn} is wider than the page {page}"
    )
    assert page.y0 <= drawn.y0 and drawn.y1 <= page.y1, (
        f"drawn {drawn} is higher than the page {page}"
    )
