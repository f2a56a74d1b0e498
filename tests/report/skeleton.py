"""Structure of an HTML page, separate from its text."""

from html.parser import HTMLParser


class Skeleton(HTMLParser):
    """Parser that collects tags with their attribute names, in order, and the text between them."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.words = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, *(name for name, _ in attributes)))

    def handle_endtag(self, tag):
        self.tags.append(("/" + tag,))

    def handle_comment(self, text):
        self.tags.append(("!--",))

    def handle_data(self, text):
        self.words.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())
