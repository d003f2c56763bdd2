"""Questions that want yes or no: the words themselves (`spoken.py`), the question's own words (`question.py`), the rules (`rules.py`)."""
