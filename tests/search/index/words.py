class Words:
    """A tokenizer that leaves words as they are, for indexes that are compared with others."""

    identity = "words"

    def __call__(self, text):
        return text.split()

    def surface(self, text):
        return [(word, word) for word in text.split()]
