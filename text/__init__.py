"""Models of text, trained with labels: data, one supervised trainer, classifier, language."""
